"""Tool calls: what is known of those delivered, and the hold of those that are not.

`ToolLedger` remembers what the client has, so that a refusal can name the call. `ToolHold` is the
mode `atomic`: a call is held back until its arguments are one complete JSON object that fits the
tool's schema; then it goes out in one piece. Until the first one is out nothing has happened, and
failover stays possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from router.core.events import ToolCall
from router.core.json_schema import Schema
from router.core.json_values import JsonFault, JsonReader

MAX_HELD_ARGUMENTS_CHARS = 8 * 1024 * 1024
"""Arguments of all calls that are held back together."""

MAX_CALLS = 512
"""Calls in one answer."""


class UnfinishedCall(JsonFault):
    """The answer is said to be whole, and a call in it is not."""


@dataclass(slots=True)
class _Delivered:
    name: str = ""
    arguments: JsonReader = field(default_factory=JsonReader)
    legacy: bool = False
    custom: bool = False
    broken: bool = False

    @property
    def whole(self) -> bool:
        """Complete JSON, and nothing after it."""
        return self.arguments.complete and not self.arguments.surplus and not self.broken


class ToolLedger:
    """What the client has of each tool call."""

    __slots__ = ("_calls", "_own")

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int, bool], _Delivered] = {}
        self._own: dict[str, None] = {}

    def take(self, event: ToolCall) -> None:
        """An increment was delivered.

        Args:
            event: the increment.
        """
        key = (event.choice, event.index, event.legacy)
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = _Delivered(legacy=event.legacy, custom=event.custom)
        call.name = call.name or event.name
        if not (call.broken or call.custom):
            try:
                call.arguments.feed(event.arguments)
            except JsonFault:
                call.broken = True  # the provider's text is passed on as it is; we only describe it

    def ran(self, what: Iterable[str]) -> None:
        """The provider itself ran a tool, and says so.

        Args:
            what: names of the fields that show it.
        """
        self._own.update(dict.fromkeys(sorted(what)))

    def describe(self) -> str:
        """The calls and whether their arguments are complete, as a clause for a sentence."""
        own = (f"`{name}` (run by the provider itself)" for name in self._own)
        return ", ".join((*map(_described, self._calls.values()), *own))

    def cut_short(self) -> str:
        """The calls whose arguments have begun and stop in mid-value, as a clause; "" if none do.

        Arguments that are no JSON at all are not among them: they are what the model wrote.
        """
        return ", ".join(_described(call) for call in self._calls.values() if _stops_inside(call))

    def without_arguments(self) -> list[ToolCall]:
        """What a finished answer's calls lack that were given no arguments: an empty object.

        Returns:
            Increments to deliver; clients parse the arguments, and "" is no JSON.
        """
        return [
            ToolCall(index=index, arguments="{}", choice=choice, legacy=legacy)
            for (choice, index, legacy), call in self._calls.items()
            if not (call.custom or call.broken or call.arguments.begun)
        ]


def _described(call: _Delivered) -> str:
    state = "complete" if call.whole else "incomplete"
    return f"`{call.name or 'unnamed'}` (arguments {state})"


def _stops_inside(call: _Delivered) -> bool:
    reader = call.arguments
    return reader.begun and not (reader.complete or call.broken)


@dataclass(slots=True)
class _Held:
    first: ToolCall
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    reader: JsonReader = field(default_factory=JsonReader)
    out: bool = False


class ToolHold:
    """Holds the calls of one attempt until they are whole.

    Args:
        schemas: compiled `parameters` by tool name; a tool without any takes every object.
    """

    def __init__(self, schemas: Mapping[str, Schema | None]) -> None:
        self._schemas = schemas
        self._held: dict[int, dict[tuple[int, bool], _Held]] = {}
        self._calls = 0
        self._chars = 0

    def take(self, event: ToolCall) -> list[ToolCall]:
        """Take the next increment.

        Args:
            event: as the provider sent it, in canonical shape.

        Returns:
            Whole calls that may go out now, in the order of their indices.

        Raises:
            JsonFault: arguments that are no JSON, or do not fit the tool.
        """
        call = self._call(event)
        call.id = call.id or event.id
        call.name = call.name or event.name
        self._chars += len(event.arguments)
        if self._chars > MAX_HELD_ARGUMENTS_CHARS:
            raise JsonFault(f"more than {MAX_HELD_ARGUMENTS_CHARS} characters of arguments")
        if not call.out:
            call.pieces.append(event.arguments)
        if not call.first.custom:
            call.reader.feed(event.arguments)
            if call.reader.surplus:
                raise JsonFault(f"text after the arguments of `{call.name}`")
        return self._release(event.choice, final=False)

    def finish(self) -> list[ToolCall]:
        """The answer is whole: a call without any arguments has empty ones.

        Returns:
            The last calls.

        Raises:
            UnfinishedCall: a call is not whole.
            JsonFault: empty arguments do not fit the tool.
        """
        released = [call for choice in sorted(self._held) for call in self._last(choice)]
        for calls in self._held.values():
            for (index, _), call in sorted(calls.items()):
                if not call.out:
                    raise UnfinishedCall(
                        f"the arguments of `{call.name or index}` are not complete",
                        (),
                        call.reader.offset,
                    )
        return released

    def _call(self, event: ToolCall) -> _Held:
        calls = self._held.setdefault(event.choice, {})
        key = (event.index, event.legacy)
        call = calls.get(key)
        if call is None:
            self._calls += 1
            if self._calls > MAX_CALLS:
                raise JsonFault(f"more than {MAX_CALLS} tool calls")
            call = calls[key] = _Held(event)
        return call

    def _last(self, choice: int) -> list[ToolCall]:
        return self._release(choice, final=True)

    def _release(self, choice: int, *, final: bool) -> list[ToolCall]:
        """Whole calls whose predecessors are all out, so that the client gets them in order."""
        out: list[ToolCall] = []
        for _, call in sorted(self._held[choice].items()):
            if call.out:
                continue
            arguments = _whole_arguments(call, final=final)
            if arguments is None or not call.name:
                break
            self._check(call, {} if not call.reader.complete else call.reader.value)
            call.out = True
            call.pieces.clear()
            out.append(
                msgspec.structs.replace(call.first, id=call.id, name=call.name, arguments=arguments)
            )
        return out

    def _check(self, call: _Held, value: object) -> None:
        if call.name not in self._schemas:
            raise JsonFault(f"`{call.name}` is none of the tools that were offered")
        if call.first.custom:
            return
        if not isinstance(value, Mapping):
            raise JsonFault(f"the arguments of `{call.name}` are no object")
        schema = self._schemas[call.name]
        if schema is not None:
            schema.check_whole(value)


def _whole_arguments(call: _Held, *, final: bool) -> str | None:
    """A call's arguments if they are whole, else None. The free text of a custom tool has no end
    of its own, so it is whole only when the answer is."""
    if call.first.custom:
        return "".join(call.pieces) if final else None
    if call.reader.complete:
        return "".join(call.pieces).strip()
    return "{}" if final and not call.reader.begun else None
