"""Requests as clients send them, in both formats, with much in them that other formats lack.

Whatever a client says is drawn as a `Said`, and numbered when the request is whole; so each thing
that was said can be looked for in what a provider gets.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

from router.core.request import ChatRequest, Format
from router.wire.anthropic.request import parse_messages_request
from router.wire.anthropic.signature import unsigned_signature
from router.wire.openai.request import parse_chat_request

Json: TypeAlias = Any
Drawn: TypeAlias = st.SearchStrategy[Any]


@dataclass(frozen=True)
class Said:
    """Something that a client says.

    Args:
        text: in its own words.
        make: the field's value.
    """

    text: str
    make: Callable[[str], str] = str


@dataclass(frozen=True)
class Arguments:
    """An object in the form of JSON text.

    Args:
        fields: of the object.
    """

    fields: Mapping[str, Json]


@dataclass(frozen=True)
class Asked:
    """One request.

    Args:
        request: parsed.
        said: path and words of everything that was said.
    """

    request: ChatRequest
    said: tuple[tuple[str, str], ...]


# -- What is said ----------------------------------------------------------------------------------


def base64_of(text: str) -> str:
    """A text's bytes."""
    return base64.b64encode(text.encode()).decode()


def data_url(kind: str) -> Callable[[str], str]:
    """Makes a data URL of bytes."""
    return lambda text: f"data:{kind};base64,{base64_of(text)}"


def address(ending: str) -> Callable[[str], str]:
    """Makes an address; what is said in it is its number alone."""
    return lambda text: f"https://example.com/{text.partition('⟩')[0]}⟩{ending}"


WORDS: Final = st.builds(Said, st.text(max_size=8))
DATA: Final = st.builds(Said, st.text(max_size=4), st.just(base64_of))
NAMES: Final = st.text("abcxyz_", min_size=1, max_size=4)
MARK: Final = {"type": "ephemeral"}


def url(ending: str) -> Drawn:
    """An address."""
    return st.just(Said("", address(ending)))


def record(required: Mapping[str, Drawn], **optional: Drawn) -> Drawn:
    """An object."""
    return st.fixed_dictionaries(dict(required), optional=optional)


def typed(kind: str, **fields: Drawn) -> Drawn:
    """An object of some type; it may bear a cache mark."""
    held = {"type": st.just(kind), **fields}
    return record(held, cache_control=st.just(MARK))


def some(items: Drawn, least: int = 1, most: int = 3) -> Drawn:
    """A list."""
    return st.lists(items, min_size=least, max_size=most)


OBJECTS: Final = st.dictionaries(NAMES, WORDS | st.integers() | some(WORDS) | st.none(), max_size=3)


# -- Chat completions ------------------------------------------------------------------------------

_TEXT = typed("text", text=WORDS)
_IMAGE_URL = record(
    {"url": url(".png") | url("") | st.builds(Said, st.text(), st.just(data_url("image/png")))},
    detail=st.sampled_from(["auto", "low"]),
)
_FILE = st.one_of(
    record(
        {"file_data": DATA | st.builds(Said, st.text(), st.just(data_url("text/plain")))},
        filename=WORDS,
    ),
    record({"file_id": WORDS}),
)
_AUDIO = record({"data": DATA, "format": st.sampled_from(["mp3", "wav"])})
_CHAT_PARTS = st.one_of(
    _TEXT,
    typed("image_url", image_url=_IMAGE_URL),
    typed("input_audio", input_audio=_AUDIO),
    typed("file", file=_FILE),
    typed("video_url", video_url=record({"url": WORDS})),
)
_INSTRUCTION = record(
    {"role": st.sampled_from(["system", "developer"]), "content": WORDS | some(_TEXT)}, name=WORDS
)
_ASKING = record(
    {"role": st.just("user"), "content": WORDS | some(_CHAT_PARTS)}, name=WORDS, odd=WORDS
)
_SAYING = record(
    {
        "role": st.just("assistant"),
        "content": st.none() | WORDS | some(_TEXT | typed("refusal", refusal=WORDS)),
    },
    refusal=WORDS,
    reasoning_content=WORDS,
    name=WORDS,
    audio=record({"id": WORDS}),
    odd=WORDS,
)


@st.composite
def _calling(draw: st.DrawFn, number: int) -> list[Json]:
    """A turn that calls tools, and their results."""
    message, results = draw(_SAYING), []
    message["tool_calls"] = []
    for at in range(draw(st.integers(1, 2))):
        kind = draw(st.sampled_from(["function", "custom"]))
        given = (
            {"arguments": Arguments(draw(OBJECTS))}
            if kind == "function"
            else {"input": draw(WORDS)}
        )
        call = {"id": f"call.{number}:{at}", "type": kind, kind: {"name": draw(NAMES), **given}}
        message["tool_calls"].append(call)
        content = draw(WORDS | some(_CHAT_PARTS))
        results.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    return [message, *draw(st.permutations(results))]


@st.composite
def _legacy(draw: st.DrawFn, _number: int) -> list[Json]:
    """The form before there were tools."""
    message, name = draw(_SAYING), draw(NAMES)
    message["function_call"] = {"name": name, "arguments": Arguments(draw(OBJECTS))}
    return [message, {"role": "function", "name": name, "content": draw(WORDS)}]


_CHAT_TOOLS = st.lists(
    record({"name": NAMES, "parameters": st.just({"type": "object"})}, description=WORDS),
    max_size=2,
    unique_by=lambda tool: tool["name"],
).map(lambda tools: [{"type": "function", "function": tool} for tool in tools])


@st.composite
def chat_requests(draw: st.DrawFn) -> Asked:
    """Requests for a chat completion."""
    messages: list[Json] = draw(st.lists(_INSTRUCTION, max_size=2))
    for number in range(draw(st.integers(1, 4))):
        turn = draw(st.integers(0, 4))
        if turn < 2:
            messages.append(draw(_ASKING))
        elif turn == 2:
            messages.append(draw(_SAYING))
        else:
            messages += draw(_calling(number) if turn == 3 else _legacy(number))
        messages += draw(st.lists(_INSTRUCTION, max_size=1)) if draw(st.booleans()) else []
    body = {"model": "chat", "messages": messages, "tools": draw(_CHAT_TOOLS)}
    return asked(Format.OPENAI, body)


# -- Messages --------------------------------------------------------------------------------------

_SIGNATURE = st.sampled_from(["c2ln", unsigned_signature()])
_FULL = st.text(max_size=6).map(lambda text: Said(f"{text}."))
_BLOCK = typed("text", text=_FULL)
_CITED = record(
    {"type": st.just("text"), "text": _FULL}, citations=some(record({"cited_text": WORDS}))
)


def _source(kind: str, **fields: Drawn) -> Drawn:
    return record({"type": st.just(kind), **fields})


_IMAGE = typed(
    "image",
    source=st.one_of(
        _source("base64", media_type=st.just("image/png"), data=DATA),
        _source("url", url=url(".png") | url("")),
        _source("file", file_id=WORDS.map(lambda said: Said(f"{said.text}."))),
    ),
)
_DOCUMENT = record(
    {
        "type": st.just("document"),
        "source": st.one_of(
            _source("base64", media_type=st.just("application/pdf"), data=DATA),
            _source("text", media_type=st.just("text/plain"), data=_FULL),
            _source("url", url=url(".pdf")),
            _source("content", content=some(_BLOCK)),
            _source("file", file_id=st.just(Said("."))),
        ),
    },
    title=WORDS,
    context=WORDS,
    citations=st.just({"enabled": True}),
)
_FOUND = record(
    {"type": st.just("search_result"), "source": WORDS, "title": WORDS, "content": some(_BLOCK)}
)
_OTHER = record({"type": st.just("container_upload"), "file_id": WORDS})
_USER_BLOCKS = st.one_of(_BLOCK, _IMAGE, _DOCUMENT, _FOUND, _OTHER)
_ASSISTANT_BLOCKS = st.one_of(
    _CITED,
    record({"type": st.just("thinking"), "thinking": WORDS, "signature": _SIGNATURE}),
    record({"type": st.just("redacted_thinking"), "data": _FULL}),
    record(
        {
            "type": st.just("server_tool_use"),
            "id": st.just("srv_1"),
            "name": st.just("web_search"),
            "input": OBJECTS,
        }
    ),
    record(
        {
            "type": st.just("web_search_tool_result"),
            "tool_use_id": st.just("srv_1"),
            "content": some(record({"type": st.just("web_search_result"), "title": WORDS})),
        }
    ),
)
_USER = record({"role": st.just("user"), "content": _FULL | some(_USER_BLOCKS)})
_ASSISTANT = record({"role": st.just("assistant"), "content": _FULL | some(_ASSISTANT_BLOCKS)})
_SYSTEM = record({"role": st.just("system"), "content": _FULL | some(_BLOCK)})


@st.composite
def _using(draw: st.DrawFn, number: int) -> list[Json]:
    """A turn that uses tools, and their results."""
    blocks, results = draw(some(_ASSISTANT_BLOCKS, 0)), []
    for at in range(draw(st.integers(1, 2))):
        call = {"type": "tool_use", "id": f"toolu_{number}_{at}", "name": draw(NAMES)}
        blocks.append({**call, "input": draw(OBJECTS)})
        result = draw(
            record(
                {"type": st.just("tool_result"), "tool_use_id": st.just(call["id"])},
                content=WORDS | some(_USER_BLOCKS, 0),
                is_error=st.booleans(),
            )
        )
        results.append(result)
    more = draw(some(_USER_BLOCKS, 0, 1))
    answered = [*draw(st.permutations(results)), *more]
    return [{"role": "assistant", "content": blocks}, {"role": "user", "content": answered}]


_TOOLS = st.lists(
    record({"name": NAMES, "input_schema": st.just({"type": "object"})}, description=WORDS),
    max_size=2,
    unique_by=lambda tool: tool["name"],
)


@st.composite
def message_requests(draw: st.DrawFn) -> Asked:
    """Messages requests."""
    messages: list[Json] = []
    for number in range(draw(st.integers(1, 4))):
        turn = draw(st.integers(0, 3))
        if turn < 2:
            messages.append(draw(_USER))
        else:
            messages += [draw(_ASSISTANT)] if turn == 2 else draw(_using(number))
        if messages[-1]["role"] == "user" and draw(st.integers(0, 3)) == 0:
            messages += [draw(_SYSTEM), draw(_ASSISTANT)]
    body = {"model": "chat", "max_tokens": 9_000, "messages": messages, "tools": draw(_TOOLS)}
    system = draw(st.none() | WORDS | some(_BLOCK))
    return asked(Format.ANTHROPIC, body if system is None else {**body, "system": system})


# -- A whole request -------------------------------------------------------------------------------

_PARSERS: Final[Mapping[Format, Callable[[bytes], ChatRequest]]] = {
    Format.OPENAI: parse_chat_request,
    Format.ANTHROPIC: parse_messages_request,
}


def asked(format_: Format, body: Json) -> Asked:
    """A request of which everything that is said is numbered."""
    said: list[tuple[str, str]] = []
    raw = _numbered(body, "", said, count())
    request = _PARSERS[format_](json.dumps(raw).encode())
    return Asked(request=request, said=tuple(said))


def _numbered(value: Json, path: str, said: list[tuple[str, str]], numbers: Iterator[int]) -> Json:
    match value:
        case Said():
            words = f"⟨{next(numbers)}⟩{value.text}"
            made = value.make(words)
            said.append((path, made if made.startswith("https://") else words))
            return made
        case Arguments():
            inner: list[tuple[str, str]] = []
            fields = _numbered(value.fields, path, inner, numbers)
            said += [(path, words) for _, words in inner]
            return json.dumps(fields)
        case dict():
            return {
                name: _numbered(one, f"{path}.{name}" if path else name, said, numbers)
                for name, one in value.items()
            }
        case list():
            return [_numbered(one, f"{path}[{at}]", said, numbers) for at, one in enumerate(value)]
    return value
