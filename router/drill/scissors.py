"""Where a provider's body is cut: a pure cursor over its bytes.

The provider's own reader counts, so a token is what the router takes for one: a role delta, a
comment, a piece of reasoning or an empty delta is none, whatever the wire format.
"""

from __future__ import annotations

from collections.abc import Iterator

from router.core.events import Event, Text
from router.providers.base import StreamReader


class Scissors:
    """Follows one response body.

    Args:
        reader: a fresh one of the provider that is being cut.
        after_texts: cut behind the event with so many pieces of text before its end; 0 cuts before
            the first byte of the body; None never cuts.
    """

    def __init__(self, reader: StreamReader, after_texts: int | None) -> None:
        self._reader = reader
        self._after = after_texts
        self.texts = 0
        """Pieces of text in what was let through."""
        self.chars = 0
        """Characters of text in it."""
        self.struck = False
        """The body ends here."""

    def feed(self, data: bytes) -> int:
        """Take the next bytes.

        Args:
            data: not empty.

        Returns:
            How many of them may pass; fewer than all only when `struck`.
        """
        if self._after == 0:
            self.struck = True
            return 0
        passed = 0
        for piece in _lines(data):
            self._count(self._reader.feed(piece))
            passed += len(piece)
            if self._after is not None and self.texts >= self._after:
                self.struck = True
                break
        return passed

    def close(self) -> None:
        """The body ended by itself: count what its reader was still holding."""
        self._count(self._reader.close())

    def _count(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Text):
                self.texts += 1
                self.chars += len(event.text)


def _lines(data: bytes) -> Iterator[bytes]:
    """The bytes in pieces that end behind a line feed: no event ends anywhere else."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at) + 1 or len(data)
        yield data[at:end]
        at = end
