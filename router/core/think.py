"""`<think>` tags inside content, for routes that say that they are reasoning.

Some servers leave a model's reasoning in the text, between tags. By default that is text like any
other; a route may say `think_tags: reasoning`: then it is forwarded as that, and never committed.
"""

from __future__ import annotations

from router.core.events import Reasoning, Text

OPEN = "<think>"
CLOSE = "</think>"

MAX_LEAD_CHARS = 400
"""White space before the opening tag that is held back; more of it is an answer of its own."""


class ThinkSplitter:
    """Splits the text of one attempt. Only a tag at the very beginning opens reasoning."""

    __slots__ = ("_after", "_held", "_inside", "_over")

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self._after = False  # the closing tag has come, and the line ends that follow it may
        self._over = False

    @property
    def over(self) -> bool:
        """All further text passes as it is."""
        return self._over

    def feed(self, text: str) -> list[Text | Reasoning]:
        """Take the next text.

        Args:
            text: not empty.

        Returns:
            Text and reasoning, in order; what may still turn out to be a tag is held back.
        """
        if self._over:
            return [Text(text)]
        if self._after:
            return self._say(text)
        self._held += text
        events: list[Text | Reasoning] = []
        if not self._inside and not self._open():
            return self._settle()
        if self._inside:
            self._think(events)
        return events

    def finish(self) -> list[Text | Reasoning]:
        """The text is over: what was held back was no tag."""
        held, self._held = self._held, ""
        if not held:
            return []
        return [Reasoning(held) if self._inside else Text(held)]

    def _say(self, text: str) -> list[Text | Reasoning]:
        """Text after the tag, without the empty lines that set it off."""
        text = text.lstrip("\n")
        self._over = bool(text)
        return [Text(text)] if text else []

    def _open(self) -> bool:
        """Has the opening tag come? While it may still come, nothing is decided."""
        bare = self._held.lstrip()
        if bare.startswith(OPEN):
            self._inside = True
            self._held = bare[len(OPEN) :]
            return True
        return False

    def _settle(self) -> list[Text | Reasoning]:
        bare = self._held.lstrip()
        if OPEN.startswith(bare) and len(self._held) <= MAX_LEAD_CHARS:
            return []
        self._over = True
        return self.finish()

    def _think(self, events: list[Text | Reasoning]) -> None:
        thought, tag, rest = self._held.partition(CLOSE)
        if tag:
            self._after, self._inside, self._held = True, False, ""
            events += [Reasoning(thought)] if thought else []
            events += self._say(rest)
            return
        keep = _overlap(self._held, CLOSE)
        thought = self._held[: len(self._held) - keep]
        self._held = self._held[len(thought) :]
        events += [Reasoning(thought)] if thought else []


def _overlap(text: str, tag: str) -> int:
    """Length of the longest end of a text that may be the beginning of a tag."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:size]):
            return size
    return 0
