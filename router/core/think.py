"""`<think>` tags inside content, for routes that say that they are reasoning.

Some servers leave a model's reasoning in the text, between tags. By default that is text like any
other; a route may say `think_tags: reasoning`: then it is forwarded as that, and never committed.
"""

from __future__ import annotations

from router.core.events import Event, Reasoning, Text

OPEN = "<think>"
CLOSE = "</think>"


class ThinkSplitter:
    """Splits the text of one attempt. Only a tag at the very beginning opens reasoning."""

    __slots__ = ("_held", "_inside", "_over")

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self._over = False

    def feed(self, text: str) -> list[Event]:
        """Take the next text.

        Args:
            text: not empty.

        Returns:
            Text and reasoning, in order; what may still turn out to be a tag is held back.
        """
        if self._over:
            return [Text(text)]
        self._held += text
        events: list[Event] = []
        if not self._inside and not self._open():
            return self._settle()
        if self._inside:
            self._think(events)
        return events

    def finish(self) -> list[Event]:
        """The text is over: what was held back was no tag."""
        held, self._held = self._held, ""
        if not held:
            return []
        return [Reasoning(held) if self._inside else Text(held)]

    def _open(self) -> bool:
        """Has the opening tag come? While it may still come, nothing is decided."""
        bare = self._held.lstrip()
        if bare.startswith(OPEN):
            self._inside = True
            self._held = bare[len(OPEN) :]
            return True
        return False

    def _settle(self) -> list[Event]:
        bare = self._held.lstrip()
        if OPEN.startswith(bare):
            return []
        self._over = True
        return self.finish()

    def _think(self, events: list[Event]) -> None:
        thought, tag, rest = self._held.partition(CLOSE)
        if tag:
            self._over, self._inside, self._held = True, False, ""
            events += [Reasoning(thought)] if thought else []
            rest = rest.lstrip("\n")
            events += [Text(rest)] if rest else []
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
