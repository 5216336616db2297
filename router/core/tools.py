"""Tool calls: what is known of those delivered, and the hold of those that are not.

`ToolLedger` remembers what the client has, so that a refusal can name the call. `ToolHold` is the
mode `atomic`: a call is held back until its arguments are one complete JSON object that fits the
tool's schema; then it goes out in one piece. Until the first one is out nothing has happened, and
failover stays possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from router.core.events import ToolCall
from router.core.json_schema import Schema
from router.core.json_values import JsonFault, JsonReader

MAX_HELD_ARGUMENTS_CHARS = 8 * 1024 * 1024
"""Arguments of all calls that are held back together."""

MAX_CALLS = 512
"""Calls in one answer."""


@dataclass(slots=True)
class _Delivered:
    name: str = ""
    arguments: JsonReader = field(default_factory=JsonReader)
    broken: bool = False


class ToolLedger:
    """What the client has of each tool call."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], _Delivered] = {}

    def take(self, event: ToolCall) -> None:
        """An increment was delivered.

        Args:
            event: the increment.
        """
        call = self._calls.setdefault((event.choice, event.index), _Delivered())
        call.name = call.name or event.name
        if not call.broken:
            try:
                call.arguments.feed(event.arguments)
            except JsonFault:
                call.broken = True  # the provider's text is passed on as it is; we only describe it

    def describe(self) -> str:
        """The calls and whether their arguments are complete, as a clause for a sentence."""
        return ", ".join(
            f"`{call.name or 'unnamed'}` "
            f"(arguments {'complete' if call.arguments.complete else 'incomplete'})"
            for call in self._calls.values()
        )


@dataclass(slots=True)
class _Held:
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    reader: JsonReader = field(default_factory=JsonReader)
    legacy: bool = False
    out: bool = False


class ToolHold:
    """Holds the calls of one attempt until they are whole.

    Args:
        schemas: compiled `parameters` by tool name; a tool without any takes every object.
    """

    def __init__(self, schemas: Mapping[str, Schema | None]) -> None:
        self._schemas = schemas
        self._held: dict[int, _Held] = {}
        self._chars = 0

    @property
    def holding(self) -> bool:
        """Some call is not out yet."""
        return any(not call.out for call in self._held.values())

    def take(self, event: ToolCall) -> list[ToolCall]:
        """Take the next increment.

        Args:
            event: as the provider sent it, in canonical shape.

        Returns:
            Whole calls that may go out now, in the order of their indices.

        Raises:
            JsonFault: arguments that are no JSON, or do not fit the tool.
        """
        call = self._held.setdefault(event.index, _Held(legacy=event.legacy))
        if len(self._held) > MAX_CALLS:
            raise JsonFault(f"more than {MAX_CALLS} tool calls")
        call.id = call.id or event.id
        call.name = call.name or event.name
        self._chars += len(event.arguments)
        if self._chars > MAX_HELD_ARGUMENTS_CHARS:
            raise JsonFault(f"more than {MAX_HELD_ARGUMENTS_CHARS} characters of arguments")
        call.pieces.append(event.arguments)
        call.reader.feed(event.arguments)
        return self._release(final=False)

    def finish(self) -> list[ToolCall]:
        """The answer is whole: a call without any arguments has empty ones.

        Returns:
            The last calls.

        Raises:
            JsonFault: a call is not whole.
        """
        released = self._release(final=True)
        for index, call in sorted(self._held.items()):
            if not call.out:
                raise JsonFault(
                    f"the arguments of `{call.name or index}` are not complete",
                    (),
                    call.reader.offset,
                )
        return released

    def _release(self, *, final: bool) -> list[ToolCall]:
        """Whole calls whose predecessors are all out, so that the client gets them in order."""
        out: list[ToolCall] = []
        for index, call in sorted(self._held.items()):
            if call.out:
                continue
            empty = final and not call.reader.begun
            if not (call.reader.complete or empty) or not call.name:
                break
            arguments = "{}" if empty else "".join(call.pieces).strip()
            self._check(call, {} if empty else call.reader.value)
            call.out = True
            out.append(
                ToolCall(
                    index=index,
                    id=call.id,
                    name=call.name,
                    arguments=arguments,
                    legacy=call.legacy,
                )
            )
        return out

    def _check(self, call: _Held, value: object) -> None:
        if call.reader.surplus:
            raise JsonFault(f"text after the arguments of `{call.name}`")
        if call.name not in self._schemas:
            raise JsonFault(f"`{call.name}` is none of the tools that were offered")
        if not isinstance(value, Mapping):
            raise JsonFault(f"the arguments of `{call.name}` are no object")
        schema = self._schemas[call.name]
        if schema is not None:
            schema.check_whole(value)
