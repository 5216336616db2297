"""Tool calls and their results in a history: each result belongs to a call of the turn just before.

Formats agree on this, and providers refuse a history that breaks it. Messages of one side that
follow each other are one turn.
"""

from __future__ import annotations

from typing import Any

from router.wire.checks import quote, refuse
from router.wire.jsontext import loads, mend_tree


class CallBook:
    """The calls of one request, written down message by message.

    Args:
        unique: an id may stand for one call only, in all of the request; where not, in one turn.
    """

    __slots__ = ("_names", "_open", "_role", "_seen", "_unique")

    def __init__(self, *, unique: bool) -> None:
        self._unique = unique
        self._role = ""
        self._seen: set[str] = set()
        self._names: dict[str, str] = {}
        self._open: dict[str, str] = {}

    def turn(self, role: str) -> None:
        """A message of the user or the assistant begins.

        Args:
            role: `user` (also for tools' results) or `assistant`.

        Raises:
            RequestError: the assistant goes on, and a call of its last turn has no result.
        """
        if role == "assistant" and self._role == "user":
            self.close()
            self._names.clear()
            if not self._unique:
                self._seen.clear()
        self._role = role

    def call(self, call_id: str, name: str, where: str, *, field: str = "id") -> None:
        """The assistant calls a tool.

        Args:
            call_id: the call's id, not empty.
            name: the tool's.
            where: path of the call.
            field: of the id in it.

        Raises:
            RequestError: another call has this id.
        """
        if call_id in self._seen:
            param = f"{where}.{field}"
            refuse(f"'{param}' repeats the id {quote(call_id)}.", param, "invalid_value")
        self._seen.add(call_id)
        self._names[call_id] = name
        self._open[call_id] = where

    def result(self, call_id: str, where: str) -> str:
        """A result is given.

        Args:
            call_id: of the call.
            where: path of the field that names it.

        Returns:
            Name of the tool that was called.

        Raises:
            RequestError: there is no such call in the assistant's turn just before, or it has its
                result already.
        """
        if self._open.pop(call_id, None) is None:
            again = call_id in self._names
            what = (
                "has its result already" if again else "is no call of the assistant's turn before"
            )
            refuse(f"'{where}' names {quote(call_id)}, which {what}.", where, "invalid_value")
        return self._names[call_id]

    def close(self) -> None:
        """No further result of these calls can come.

        Raises:
            RequestError: one has none.
        """
        for call_id, where in self._open.items():
            message = (
                f"'{where}' calls a tool, and its result is missing: "
                f"the turn behind it must hold one for {quote(call_id)}."
            )
            refuse(message, where, "missing_tool_result")


def check_arguments(text: str, where: str) -> str:
    """The arguments of a call: JSON text of one object.

    Args:
        text: as the client sent it; empty where a model gave none.
        where: path of the field.

    Returns:
        The same, or `{}`.

    Raises:
        RequestError: it is no such text.
    """
    if not text.strip():
        return "{}"
    if arguments_object(text) is None:
        message = f"'{where}' must be the JSON text of one object, such as '{{}}'."
        refuse(message, where, "invalid_value")
    return text


def arguments_object(text: str) -> dict[str, Any] | None:
    """The arguments of a call as an object; half a character in them is mended.

    Args:
        text: as a model wrote it.

    Returns:
        None if it is no JSON text of one object.
    """
    try:
        value, broken = loads(text.encode())
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    return dict(mend_tree(value)) if broken else value
