"""Tool-call deltas as providers really send them, to increments in canonical shape.

OpenAI's rule is simple: `index` names the call, `id` and `name` come once, `arguments` come in
pieces. The table of what others do is long (`docs/failures.md`): the index is missing, always 0 or
used twice; id and name come with every piece, or never; the arguments are an object, or start with
an empty `{}` that is taken back. A custom tool's call has `custom` with an `input` in the place of
`function` with `arguments`. Two rules tell the calls apart:

- an id that is known names its call, whatever else the delta says;
- otherwise a call is only begun by a *name*; a delta without a name belongs to the latest call of
  its index. (Some servers invent a fresh id for every piece: an unknown id alone begins nothing.)
"""

from __future__ import annotations

from router.core.events import ToolCall
from router.errors import MalformedStream
from router.wire.jsontext import MAX_MEND_DEPTH, Json, deeper_than, dumps, mend

MAX_TOOL_CALLS = 1024
"""Bound on the calls of one choice: an answer has a few, a loop gone wild has more than this."""
MAX_HELD_CHARS = 1_048_576
"""Bound on the arguments that came before their call's name."""

_EMPTY_OBJECT = "{}"


class _Call:
    """What is known of one call."""

    __slots__ = (
        "custom",
        "held",
        "held_chars",
        "id",
        "index",
        "name",
        "opened",
        "placeholder",
        "tail",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.custom = False
        self.opened = False  # its first increment is out, with the id and the name
        self.held: list[str] = []  # arguments that came before the name
        self.held_chars = 0
        self.placeholder = False  # its arguments so far are one `{}` that may be taken back
        self.tail = ""  # last character of its arguments


class ToolCalls:
    """The calls of one choice.

    Args:
        choice: index of the choice.
        legacy: they come as `function_call`, of which there is one at most.
    """

    __slots__ = ("_by_id", "_by_wire_index", "_calls", "_choice", "_legacy")

    def __init__(self, choice: int, *, legacy: bool = False) -> None:
        self._choice = choice
        self._legacy = legacy
        self._calls: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_wire_index: dict[int, _Call] = {}

    def take(self, delta: Json, out: list[ToolCall]) -> None:
        """Read one entry of `tool_calls`, or a `function_call` wrapped as `{"function": …}`.

        Args:
            delta: the entry, as decoded.
            out: increments are appended here.

        Raises:
            MalformedStream: it has no readable shape, or a bound is passed.
        """
        if not isinstance(delta, dict):
            raise MalformedStream("A tool call is not an object.")
        custom = not delta.get("function") and bool(delta.get("custom"))
        function = delta.get("custom" if custom else "function") or {}
        if not isinstance(function, dict):
            raise MalformedStream("A tool call's function is not an object.")
        id_, name = _word(delta.get("id")), _word(function.get("name"))
        arguments = _arguments(function.get("input" if custom else "arguments"))
        call = self._find(delta.get("index"), id_, name, arguments)
        if id_ and not call.id:
            call.id = id_
            self._by_id[id_] = call
        call.name = call.name or name
        call.custom = call.custom or custom
        self._emit(call, self._real(call, arguments), out)

    def finish(self, out: list[ToolCall]) -> None:
        """The choice is finished: give what was held back because more might have come.

        Args:
            out: increments are appended here.
        """
        for call in self._calls:
            if not call.opened:
                out.append(self._first(call, ""))
            if call.placeholder:
                call.placeholder = False
                out.append(self._next(call, _EMPTY_OBJECT))

    def _find(self, wire_index: Json, id_: str, name: str, arguments: str) -> _Call:
        known = self._by_id.get(id_) if id_ else None
        if known is not None:
            return known
        index = wire_index if type(wire_index) is int else None
        if index is not None:
            candidate = self._by_wire_index.get(index)
        else:
            candidate = self._calls[-1] if self._calls else None
        if candidate is None or _begins(candidate, id_, name, arguments):
            return self._new(index)
        return candidate

    def _new(self, wire_index: int | None) -> _Call:
        if len(self._calls) >= MAX_TOOL_CALLS:
            raise MalformedStream(f"More than {MAX_TOOL_CALLS} tool calls in one answer.")
        call = _Call(len(self._calls))
        self._calls.append(call)
        if wire_index is not None:
            self._by_wire_index[wire_index] = call
        return call

    def _real(self, call: _Call, arguments: str) -> str:
        """The arguments that count now: a leading `{}` waits until nothing follows it."""
        if arguments == _EMPTY_OBJECT and not call.tail:
            call.placeholder = True
            return ""
        if arguments:
            call.placeholder = False
            call.tail = arguments.rstrip()[-1:] or call.tail
        return arguments

    def _emit(self, call: _Call, arguments: str, out: list[ToolCall]) -> None:
        if call.opened:
            if arguments:
                out.append(self._next(call, arguments))
        elif call.name:
            out.append(self._first(call, arguments))
        elif arguments:
            call.held_chars += len(arguments)
            if call.held_chars > MAX_HELD_CHARS:
                raise MalformedStream("A tool call's arguments go on without its name.")
            call.held.append(arguments)

    def _first(self, call: _Call, arguments: str) -> ToolCall:
        call.opened = True
        arguments = "".join((*call.held, arguments))
        call.held.clear()
        return self._increment(call, call.id, call.name, arguments)

    def _next(self, call: _Call, arguments: str) -> ToolCall:
        return self._increment(call, "", "", arguments)

    def _increment(self, call: _Call, id_: str, name: str, arguments: str) -> ToolCall:
        return ToolCall(call.index, id_, name, arguments, self._choice, self._legacy, call.custom)


def _begins(latest: _Call, id_: str, name: str, arguments: str) -> bool:
    """Does this delta, whose id is not known, begin a new call after `latest` of its index?"""
    if not name:
        return False
    if id_:
        return bool(latest.name or latest.id)
    if latest.name not in ("", name):
        return True
    # The same name again and no ids: a repetition, unless one whole object meets the next one.
    return latest.tail == "}" and arguments.lstrip()[:1] == "{"


def _word(value: Json) -> str:
    return mend(value) if isinstance(value, str) else ""


def _arguments(value: Json) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, dict | list) and not deeper_than(value, MAX_MEND_DEPTH):
        return dumps(value).decode()
    raise MalformedStream("A tool call's arguments are neither text nor an object.")
