"""Canonical events to what a client of chat completions reads: the stream's chunks, or one object.

Both writers take the same events, and a stream's chunks folded by a client give the object that
`CompletionFold` gives; a property test holds them together. What the two may say, and why, is in
`docs/wire.md`: one id, one model, one role delta per choice, one finish chunk per choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from router.core.events import (
    Event,
    Extra,
    Finish,
    Opened,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
)
from router.core.request import Format
from router.wire.jsontext import Json, dumps, mend, mend_tree

_DONE: Final = b"data: [DONE]\n\n"
_OPEN_FINISH: Final = b',"finish_reason":null}]}\n\n'
_TEXT_TAIL: Final = b"}" + _OPEN_FINISH


def error_object(
    message: str,
    *,
    type: str,  # noqa: A002 - OpenAI's own word on the wire
    param: str | None = None,
    code: str | None = None,
    router: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of an OpenAI error, for a response of its own or inside a stream.

    Args:
        message: a sentence a person can act on.
        type: such as `server_error`.
        param: the request field at fault, or None.
        code: a stable machine-readable word, or None.
        router: the failover metadata, where there is something to tell.

    Returns:
        `{"error": {…}}`.
    """
    error: dict[str, Any] = {"message": message, "type": type, "param": param, "code": code}
    if router is not None:
        error["router"] = dict(router)
    return {"error": error}


class ChunkWriter:
    """One client's stream, whatever number of attempts feeds it.

    The model is frozen when the first chunk is written: a client sees one model for one stream.

    Args:
        completion_id: the stream's `id`.
        created: Unix time in seconds.
        fallback_model: the model's name if none was reported before the first chunk.
    """

    __slots__ = ("_calls", "_created", "_head", "_id", "_model", "_named", "_roles", "_text_head")

    def __init__(self, *, completion_id: str, created: int, fallback_model: str) -> None:
        self._id = completion_id
        self._created = created
        self._model = fallback_model
        self._named = False  # the model's name may no longer change
        self._head = b""  # the constant envelope up to the choice's index
        self._text_head = b""  # the same up to the text of choice 0
        self._roles: set[int] = set()  # choices whose role is out
        self._calls: set[tuple[int, int, bool]] = set()  # calls whose id and name are out

    def write(self, events: Sequence[Event]) -> bytes:
        """Chunks for what the client is to see of these events; b"" if that is nothing.

        Args:
            events: `Usage`, `Finish`, `Done` and `Failed` are not written: how the stream ends is
                said by `finish` or `error`.
        """
        out: list[bytes] = []
        roles = self._roles
        for event in events:
            if type(event) is Text and event.choice == 0 and event.logprobs is None and 0 in roles:
                out += (self._text_head, dumps(event.text), _TEXT_TAIL)
            else:
                self._event(event, out)
        return b"".join(out)

    def finish(
        self,
        finishes: Sequence[Finish],
        usage: Mapping[str, Any] | None,
        router: Mapping[str, Any] | None,
    ) -> bytes:
        """The end of a stream that succeeded.

        Args:
            finishes: at least one; of several for one choice, the last counts.
            usage: written as a chunk of its own, if given.
            router: failover metadata, written on the last finish chunk, if given.

        Raises:
            ValueError: no finish. An answer that did not finish must not look as if it had.
        """
        last = _last_per_choice(finishes)
        out: list[bytes] = []
        for position, (choice, reason) in enumerate(last.items(), start=1):
            delta = self._role(choice, b'"content":""').rstrip(b",")
            out += (self._envelope(), b'%d,"delta":{' % choice, delta)
            out.append(b'},"finish_reason":%b}]' % dumps(reason))
            if router is not None and position == len(last):
                out.append(b',"router":%b' % dumps(router))
            out.append(b"}\n\n")
        if usage is not None:
            head = self._envelope().removesuffix(b'{"index":')
            out += (head, b'],"usage":', dumps(usage), b"}\n\n")
        out.append(_DONE)
        return b"".join(out)

    def error(self, error: Mapping[str, Any]) -> bytes:
        """The end of a stream that failed: one event, no finish, no `[DONE]`.

        Args:
            error: as `error_object` gives it, or its inner object.
        """
        body = error if "error" in error else {"error": error}
        return b"data: %b\n\n" % dumps(body)

    def _event(self, event: Event, out: list[bytes]) -> None:
        if type(event) is Opened:
            if not self._named:
                self._named = True
                self._model = event.model
            return
        fields = _DELTAS.get(type(event))
        if fields is None or _foreign(event):
            return
        delta = fields(self, event)
        choice: int = event.choice  # type: ignore[union-attr]  # every kind in the table has one
        role = self._role(choice, b"" if type(event) is Text else b'"content":null')
        body = (role + delta).rstrip(b",")  # an `Extra` without fields leaves the role alone
        out += (self._envelope(), b'%d,"delta":{' % choice, body, b"}")
        if type(event) is Text and event.logprobs is not None:
            out.append(b',"logprobs":%b' % dumps(event.logprobs))
        out.append(_OPEN_FINISH)

    def _envelope(self) -> bytes:
        if not self._head:
            self._named = True
            self._head = (
                b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,'
                b'"choices":[{"index":' % (dumps(self._id), self._created, dumps(self._model))
            )
            self._text_head = self._head + b'0,"delta":{"content":'
        return self._head

    def _role(self, choice: int, content: bytes) -> bytes:
        """The role, on the first delta of a choice only; a second one reads "assistantassistant".

        It rides on the first content, as OpenAI's own first deltas do, with `content` in it.
        """
        if choice in self._roles:
            return b""
        self._roles.add(choice)
        return b'"role":"assistant",' + (content + b"," if content else b"")

    def _text(self, event: Text) -> bytes:
        return b'"content":' + dumps(event.text)

    def _reasoning(self, event: Reasoning) -> bytes:
        return b'"reasoning_content":' + dumps(event.text)

    def _refusal(self, event: Refusal) -> bytes:
        return b'"refusal":' + dumps(event.text)

    def _extra(self, event: Extra) -> bytes:
        return dumps(event.fields)[1:-1]

    def _tool_call(self, event: ToolCall) -> bytes:
        key = (event.choice, event.index, event.legacy)
        kind, text = ("custom", "input") if event.custom else ("function", "arguments")
        function: dict[str, Any] = {text: event.arguments}
        first = key not in self._calls
        if first:
            self._calls.add(key)
            function = {"name": event.name, **function}
        if event.legacy:
            return b'"function_call":' + dumps(function)
        call: dict[str, Any] = {"index": event.index}
        if first:
            call |= {"id": event.id or _call_id(self._id, event), "type": kind}
        return b'"tool_calls":' + dumps([call | {kind: function}])


_DELTAS: Final[Mapping[type, Callable[[ChunkWriter, Any], bytes]]] = {
    Text: ChunkWriter._text,  # noqa: SLF001 - the table of this file's own methods
    Reasoning: ChunkWriter._reasoning,  # noqa: SLF001
    Refusal: ChunkWriter._refusal,  # noqa: SLF001
    Extra: ChunkWriter._extra,  # noqa: SLF001
    ToolCall: ChunkWriter._tool_call,  # noqa: SLF001
}
"""What a client is shown, and how; every other kind is not for it."""


class _Choice:
    """The pieces of one choice, each list joined once at the end."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.refusal: list[str] = []
        self.extras: list[Json] = []
        self.logprobs: list[Json] = []
        self.calls: dict[tuple[int, bool], tuple[ToolCall, list[str]]] = {}


class CompletionFold:
    """The answer to a blocking request, folded from the events that would have been streamed.

    Args:
        completion_id: the completion's `id`.
        created: Unix time in seconds.
        fallback_model: the model's name if none was reported before the first content.
    """

    def __init__(self, *, completion_id: str, created: int, fallback_model: str) -> None:
        self._id = completion_id
        self._created = created
        self._model = fallback_model
        self._named = False
        self._choices: dict[int, _Choice] = {}

    def add(self, events: Sequence[Event]) -> None:
        """Take the next events; the same kinds count as for `ChunkWriter.write`.

        Args:
            events: in order.
        """
        for event in events:
            if type(event) is Opened:
                if not self._named:
                    self._named = True
                    self._model = event.model
                continue
            take = _FOLDS.get(type(event))
            if take is not None and not _foreign(event):
                self._named = True
                take(self._choice(event.choice), event)  # type: ignore[union-attr]

    def result(
        self,
        finishes: Sequence[Finish],
        usage: Mapping[str, Any] | None,
        router: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        """The `chat.completion` object.

        Args:
            finishes: as for `ChunkWriter.finish`.
            usage: put in if given.
            router: failover metadata, put in if given.

        Raises:
            ValueError: no finish.
        """
        last = _last_per_choice(finishes)
        body: dict[str, Any] = {
            "id": self._id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._model,
            "choices": [self._whole(index, reason) for index, reason in last.items()],
        }
        if usage is not None:
            body["usage"] = dict(usage)
        if router is not None:
            body["router"] = dict(router)
        return body

    def message(self) -> dict[str, Any]:
        """The message of the first choice as far as it came: an answer that was broken off."""
        message: dict[str, Any] = self._whole(0, "")["message"]
        return message

    def _choice(self, index: int) -> _Choice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice()
        return choice

    def _whole(self, index: int, reason: str) -> dict[str, Any]:
        choice = self._choice(index)
        message: dict[str, Any] = {"role": "assistant", "content": _joined(choice.text)}
        message["refusal"] = _joined(choice.refusal)
        if choice.reasoning:
            message["reasoning_content"] = _joined(choice.reasoning)
        message |= mend_tree(fold_values(choice.extras)) or {}
        message |= self._calls(choice)
        if message["content"] is None and not choice.calls and message["refusal"] is None:
            message["content"] = ""
        return {
            "index": index,
            "message": message,
            "logprobs": mend_tree(fold_values(choice.logprobs)),
            "finish_reason": reason,
        }

    def _calls(self, choice: _Choice) -> dict[str, Any]:
        message: dict[str, Any] = {}
        for (_, legacy), (first, pieces) in sorted(choice.calls.items(), key=lambda call: call[0]):
            kind, text = ("custom", "input") if first.custom else ("function", "arguments")
            function = {"name": mend(first.name), text: _joined(pieces)}
            if legacy:
                message["function_call"] = function
            else:
                call_id = mend(first.id) or _call_id(self._id, first)
                call = {"id": call_id, "type": kind, kind: function}
                message.setdefault("tool_calls", []).append(call)
        return message


def _fold_text(choice: _Choice, event: Text) -> None:
    choice.text.append(event.text)
    if event.logprobs is not None:
        choice.logprobs.append(event.logprobs)


def _fold_call(choice: _Choice, event: ToolCall) -> None:
    first, pieces = choice.calls.setdefault((event.index, event.legacy), (event, []))
    del first
    pieces.append(event.arguments)


_FOLDS: Final[Mapping[type, Callable[[_Choice, Any], None]]] = {
    Text: _fold_text,
    Reasoning: lambda choice, event: choice.reasoning.append(event.text),
    Refusal: lambda choice, event: choice.refusal.append(event.text),
    Extra: lambda choice, event: choice.extras.append(event.fields),
    ToolCall: _fold_call,
}

_WHOLE_KEYS: Final = frozenset({"id", "type", "index", "format", "role"})
"""Fields that name something: repeated in deltas, never cut into pieces."""


def fold_values(values: Sequence[Json]) -> Json:
    """Fold the increments of one unknown field as clients do.

    Args:
        values: in order; None counts for nothing.

    Returns:
        Strings joined, lists chained, objects folded field by field; of anything else the last.
    """
    values = [value for value in values if value is not None]
    if not values:
        return None
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, list) for value in values):
        return [item for value in values for item in value]
    if all(isinstance(value, dict) for value in values):
        pieces: dict[str, list[Json]] = {}
        for value in values:
            for name, piece in value.items():
                pieces.setdefault(name, []).append(piece)
        return {
            name: found[-1] if name in _WHOLE_KEYS else fold_values(found)
            for name, found in pieces.items()
        }
    return values[-1]


def _foreign(event: Event) -> bool:
    """Fields of another format, which no client of this one could read."""
    return type(event) is Extra and event.format is not Format.OPENAI


def _joined(pieces: list[str]) -> str | None:
    return "".join(map(mend, pieces)) if pieces else None


def _last_per_choice(finishes: Sequence[Finish]) -> dict[int, str]:
    """Choice to reason, in the order of the choices."""
    if not finishes:
        raise ValueError("An answer without a finish cannot be ended as a success.")
    last = {finish.choice: finish.reason for finish in finishes}
    return {choice: str(last[choice]) for choice in sorted(last)}


def _call_id(completion_id: str, call: ToolCall) -> str:
    """An id for a call whose provider gave none: clients need one to answer it."""
    return f"call_{completion_id.removeprefix('chatcmpl-')}_{call.choice}_{call.index}"
