"""The canonical conversation: what a request says, whatever format it came in.

A request for a target of its own format is never read into this: its body is passed on. Between
formats, one side reads its body into a `Conversation` and the other writes one out; so no format
knows of another. Whatever has no place here, and whatever a format cannot say, becomes a `Loss`:
nothing is lost in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Something in a request that another format cannot say.

    Args:
        param: path of the client's field, such as `messages[2].content[0]`.
        message: what becomes of it, and why, as a sentence.
        hint: the answer would be as good without it (a cache hint, a user's name): it is left out
            and reported. Where not, the request asks for something that the target cannot give, and
            the route decides whether the target may be asked all the same.
    """

    param: str
    message: str
    hint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """Text.

    Args:
        where: path in the client's request.
        text: may be empty.
    """

    where: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaPart:
    """A picture, a recording, a document: by its bytes or by its address.

    Args:
        where: path in the client's request.
        kind: what it is.
        media_type: such as `image/png`; "" where only an address is known.
        data: its bytes in standard base64, checked; "" where it is an address.
        url: its address, or "".
        name: file name or title, or "".
        detail: OpenAI's `detail` of a picture, or "".
    """

    where: str
    kind: Literal["image", "audio", "document"]
    media_type: str = ""
    data: str = ""
    url: str = ""
    name: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPart:
    """A tool call of the assistant.

    Args:
        where: path in the client's request.
        id: the call's id, which its result names.
        name: the tool's.
        arguments: JSON text of an object as the client sent it; with `custom` free text.
        custom: it called a tool that takes free text.
    """

    where: str
    id: str
    name: str
    arguments: str
    custom: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPart:
    """What a tool call brought; stands in a user's turn.

    Args:
        where: path in the client's request.
        call_id: the call's id, of a call in the assistant's turn before.
        name: the tool's, looked up in that turn.
        parts: the result.
        error: the tool failed.
    """

    where: str
    call_id: str
    name: str
    parts: tuple[TextPart | MediaPart, ...]
    error: bool = False


Part: TypeAlias = TextPart | MediaPart | CallPart | ResultPart
"""A piece of a turn. Reasoning is none: it is a format's own, and never handed to another."""


NOTHING_SAID: Final = "(no message)"
"""What the user says who did not speak first, for formats that want it so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one side says. Turns of one role may follow each other; writers join what must not.

    Args:
        where: path in the client's request.
        role: `system` only for instructions that stand behind the first turn.
        parts: at least one.
        name: who speaks, or "".
    """

    where: str
    role: Literal["system", "user", "assistant"]
    parts: tuple[Part, ...]
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that is offered.

    Args:
        where: path in the client's request.
        name: its name.
        description: or "".
        parameters: JSON Schema of its arguments; None for a tool without any.
        strict: the model is held to the schema; None where nothing was said.
        custom: it takes free text.
    """

    where: str
    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None
    strict: bool | None = None
    custom: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """Which tools may or must be called.

    Args:
        mode: as the model likes, none, at least one, or the one that is named.
        name: with `named`, the tool's.
    """

    mode: Literal["auto", "none", "required", "named"]
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Structured output.

    Args:
        where: path in the client's request.
        schema: JSON Schema, or None for any JSON (an object, where `any_object`).
        name: the schema's name, or "".
        strict: the model is held to the schema.
        any_object: OpenAI's `json_object`.
    """

    where: str
    schema: Mapping[str, Any] | None = None
    name: str = ""
    strict: bool | None = None
    any_object: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """How much the model is to reason; what is None was not said.

    Args:
        where: path in the client's request.
        on: whether at all; None leaves it to `effort`, or to the model.
        effort: a word: `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`.
        budget_tokens: the most it may cost.
        shown: the client wants to see it.
    """

    where: str
    on: bool | None = None
    effort: str | None = None
    budget_tokens: int | None = None
    shown: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are chosen; what is None was not said, and a writer leaves it out.

    Args:
        temperature: from 0.
        top_p: 0 to 1.
        top_k: from 1.
        seed: an integer.
        presence_penalty: -2 to 2.
        frequency_penalty: -2 to 2.
        logprobs: log probabilities are asked for.
        top_logprobs: with how many alternatives.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logprobs: bool = False
    top_logprobs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A whole request. The model's name is not in it: that is the target's.

    Args:
        turns: in order, at least one.
        system: the instructions that stand before them.
        tools: offered, distinct by name.
        tool_choice: None where nothing was said.
        parallel_calls: several calls at once are allowed; None where nothing was said.
        max_tokens: the answer's budget, or None.
        stop: stop sequences.
        n: number of answers.
        sampling: how tokens are chosen.
        thinking: how much to reason, or None where nothing was said.
        document: structured output, or None for text.
        user: the end user's id, or "".
        losses: what the client's format says and this cannot hold.
    """

    turns: tuple[Turn, ...]
    system: tuple[TextPart, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_calls: bool | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    thinking: Thinking | None = None
    document: Document | None = None
    user: str = ""
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A conversation in a format's own words.

    Args:
        body: the request body, without model and stream; a fresh object.
        losses: what the format could not say.
    """

    body: dict[str, Any]
    losses: tuple[Loss, ...] = ()
