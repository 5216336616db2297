"""What may be delivered of a JSON document: whole values only.

`JsonGate` stands between a provider's text and the client. What it lets out is always a prefix of
the document that ends right after a complete value, so delivered equals committed. The last closing
bracket waits until the whole document has been accepted.

Models wrap documents: in a code fence, behind a sentence, before a remark. The wrapping is taken
off, and named in `stripped`; it is never delivered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from router.core.json_values import JsonFault, JsonReader, ValueEnd

MAX_PROSE_CHARS = 2000
"""Text before the document that is taken for a preamble; more of it is an answer in prose."""

_FENCE = re.compile(r"(?:`{3,}|~{3,})(?:[^\n`{\[]*\n\s*|[ \t]*\w*[ \t]*(?=[{\[]))")
"""A fence line; or a fence on the document's own line, which must begin with a bracket then."""

Check: TypeAlias = Callable[[ValueEnd], None]
"""Judges a value before it is delivered; raises `JsonFault`."""


class Passed(NamedTuple):
    """What a gate did with a piece of text.

    Args:
        text: to be delivered, and thereby committed; perhaps "".
        fault: why nothing more can come of this document, or None. `text` is good all the same.
        ends: the values that `text` completes, their offsets those of the document.
    """

    text: str
    fault: JsonFault | None = None
    ends: Sequence[ValueEnd] = ()


class JsonGate:
    """Lets whole values out.

    Args:
        check: judges each value as it completes, and so the document before its last bracket goes
            out; or None.
        committed: text that was let out before, which this gate goes on from.
        openers: what the document may begin with: "{", "[" or both; "" for any value, in which case
            text before an opening bracket is no preamble.
    """

    def __init__(
        self,
        *,
        check: Check | None = None,
        committed: str = "",
        openers: str = "{[",
    ) -> None:
        self._check = check
        self._openers = openers
        self._reader = JsonReader.after(committed) if committed else JsonReader()
        self._before: str | None = None if committed else ""
        self._committed: list[str] = []
        self._held: list[str] = []
        self.stripped: list[str] = []
        """What was taken off: "byte order mark", "fence", "preamble", "text after the document"."""
        if committed:
            self._committed.append(committed)
        self._held_from = self._reader.offset

    @property
    def committed(self) -> str:
        """Everything that was let out."""
        if len(self._committed) > 1:
            self._committed = ["".join(self._committed)]
        return self._committed[0] if self._committed else ""

    @property
    def complete(self) -> bool:
        """The document is whole, accepted, and let out."""
        return self._reader.complete and not self._held

    @property
    def held(self) -> str:
        """Text that was received and not let out."""
        return "".join(self._held)

    def feed(self, text: str) -> Passed:
        """Take the document's next text.

        Args:
            text: any piece.

        Returns:
            What may be delivered now, and a fault if there is one: nothing of the value that is to
            blame was let out.
        """
        try:
            if self._before is not None:
                text = self._unwrap(self._before + text)
        except JsonFault as prose:
            return Passed("", prose)
        if not text:
            return Passed("")
        if self.complete:
            if not text.isspace():
                self._note("text after the document")
            return Passed("")
        self._held.append(text)
        impossible: JsonFault | None = None
        try:
            self._reader.feed(text)
        except JsonFault as error:
            impossible = error
        passed = self._let_out(self._reader.ends)
        return Passed(passed.text, passed.fault or impossible, passed.ends)

    def finish(self) -> Passed:
        """The text is over.

        Returns:
            What may still be delivered, and a fault if the document is not whole.
        """
        try:
            passed = self._let_out(self._reader.end())
        except JsonFault as fault:
            return Passed("", fault)
        if passed.fault is not None or self.complete:
            return passed
        offset = self._reader.offset
        if not self._reader.begun:
            return Passed("", JsonFault("the answer holds no JSON document", (), offset))
        return Passed(passed.text, JsonFault("the answer ended inside the document", (), offset))

    def _let_out(self, ends: list[ValueEnd]) -> Passed:
        """Everything up to the last accepted value."""
        fault: JsonFault | None = None
        last: ValueEnd | None = None
        good = 0
        for end in ends:
            try:
                if self._check is not None:
                    self._check(end)
            except JsonFault as error:
                fault = error
                break
            last = end
            good += 1
        if last is None:
            return Passed("", fault)
        held = self.held
        out, rest = held[: last.end - self._held_from], held[last.end - self._held_from :]
        self._held = [rest] if rest and last.path else []
        if rest.strip() and not last.path:
            self._note("text after the document")
        self._held_from = last.end
        self._committed.append(out)
        return Passed(out, fault, ends if good == len(ends) else ends[:good])

    def _unwrap(self, text: str) -> str:
        """Find the document's beginning; what stands before it is dropped."""
        bare = text.removeprefix("\ufeff").lstrip()
        if text.startswith("\ufeff"):
            self._note("byte order mark")
        start = self._start(bare)
        prose = len(text) if start is None else len(text) - len(bare) + start
        if prose > MAX_PROSE_CHARS:
            raise JsonFault("the answer is prose, not a JSON document")
        self._before = text if start is None else None
        if start is None:
            return ""
        return bare[start:]

    def _start(self, bare: str) -> int | None:
        """Where in a text without leading white space the document begins, or None if not yet."""
        if not bare:
            return None
        if bare[0] in "`~":
            fence = _FENCE.match(bare)
            if fence is None:
                return None
            self._note("fence")
            inner = self._start(bare[fence.end() :])
            return None if inner is None else fence.end() + inner
        if not self._openers:
            return 0
        found = [bare.find(opener) for opener in self._openers if opener in bare]
        if not found:
            return None
        if min(found):
            self._note("preamble")
        return min(found)

    def _note(self, what: str) -> None:
        if what not in self.stripped:
            self.stripped.append(what)
