"""Providers that break their format, and requests made for the purpose: every stream has an honest
end, nothing is a bug of the router, and nobody else waits."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pairs import CLIENTS, House, house

from router.api.asgi import Message
from router.api.face import Origin
from router.api.messages import MessagesFace
from router.api.sinks import BlockingSink
from router.core.request import ChatRequest
from router.engine.sink import StreamHead
from router.errors import RequestError
from router.simulate import RawAnswer
from router.wire.anthropic import parse_count_request
from router.wire.anthropic.open_call import MAX_KEPT_CHARS, OpenCall
from router.wire.anthropic.tool_input import INVALID_JSON, MAX_BROKEN_CHARS, read_input

ONCE: Final = {"retry": {"same_target": 0}, "max_attempts": 1}
PROMPT: Final = [{"role": "user", "content": "Go."}]


def stream_of(*events: Mapping[str, Any]) -> RawAnswer:
    """What a provider of Messages sends."""
    said = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
    return RawAnswer(body=said.encode())


def message_of(*blocks: Mapping[str, Any]) -> RawAnswer:
    """A whole answer of some events in the middle."""
    return stream_of(
        {"type": "message_start", "message": {"model": "m", "content": [], "usage": {}}},
        *blocks,
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
        {"type": "message_stop"},
    )


def started(index: int, **block: object) -> dict[str, Any]:
    """A block starts."""
    return {"type": "content_block_start", "index": index, "content_block": block}


def grown(index: int, **delta: object) -> dict[str, Any]:
    """It grows."""
    return {"type": "content_block_delta", "index": index, "delta": delta}


def stopped(index: int) -> dict[str, Any]:
    """It stops."""
    return {"type": "content_block_stop", "index": index}


TEXT: Final = (
    started(0, type="text", text=""),
    grown(0, type="text_delta", text="Hi. "),
    stopped(0),
)
TX: Final[dict[str, Any]] = {"type": "text", "text": "Hi."}
NO_BLOCKS: Final[list[dict[str, Any]]] = [
    {"type": ""},
    {"type": "message_delta", "delta": "x"},
    {"type": "message_delta", "delta": {"stop_reason": "made up"}},
    {"type": "signature_delta"},
    {"type": "citations_delta"},
]
"""Blocks whose type is a word that stands for something else inside the router."""


async def post(url: str, *, json: Mapping[str, Any]) -> httpx.Response:
    """One request."""
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as client:  # noqa: S501 - no TLS here
        return await client.post(url, json=json)


async def blocking(place: House, client: str) -> tuple[int, dict[str, Any]]:
    """The same without a stream: status and body."""
    path = "chat/completions" if client == "chat" else "messages"
    asked = {"model": "chat", "max_tokens": 100, "messages": PROMPT}
    response = await post(f"{place.router.base_url}/{path}", json=asked)
    return response.status_code, response.json()


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_block_of_no_type_breaks_the_answer_off(client: str) -> None:
    async with house("anthropic", route=ONCE) as place:
        for block in NO_BLOCKS:
            place.providers[0].manner.raw = message_of(*TEXT, started(1, **block), stopped(1))
            answer = await place.client(client).raw()
            assert answer.error is not None
            assert answer.error["code"] == "stream_interrupted"
            assert answer.delivered == "Hi. "
            status, body = await blocking(place, client)
            assert (status, body["error"]["code"]) == (502, "stream_interrupted")


async def test_a_delta_without_a_type_is_given_on_with_one() -> None:
    thought = (
        started(0, type="thinking", thinking=""),
        grown(0, thinking="Hm."),
        grown(0, signature="c2ln"),
        stopped(0),
        started(1, type="text", text=""),
        grown(1, text="Hi."),
        grown(1, citation={"cited_text": "Hi"}),
        stopped(1),
    )
    async with house("anthropic", route=ONCE) as place:
        place.providers[0].manner.raw = message_of(*thought)
        answer = await place.messages.raw()
        deltas = [data["delta"] for data in answer.named("content_block_delta")]
        assert [delta["type"] for delta in deltas] == [
            "thinking_delta",
            "signature_delta",
            "text_delta",
            "citations_delta",
        ]
        status, body = await blocking(place, "messages")
        assert status == 200
        assert body["content"][0]["signature"] == "c2ln"
        assert body["content"][1]["citations"] == [{"cited_text": "Hi"}]


async def test_a_signature_that_is_no_text_breaks_the_answer_off() -> None:
    signed = grown(0, type="signature_delta", signature={"a": 1})
    thought = (started(0, type="thinking", thinking="Hm."), signed, stopped(0), started(1, **TX))
    async with house("anthropic", route=ONCE) as place:
        place.providers[0].manner.raw = message_of(*thought)
        answer = await place.messages.raw()
        assert answer.error is not None
        assert "signature" in answer.error["message"]


class _BadFold:
    """Cannot put together what it was given."""

    def add(self, events: object) -> None:
        """Take it."""

    def result(self, *_: object) -> dict[str, Any]:
        """It shows only at the end."""
        raise ValueError("these blocks are none")


class _BadFace(MessagesFace):
    def fold(self, origin: Origin, model: str) -> Any:  # noqa: ANN401, ARG002 - see `_BadFold`
        return _BadFold()


async def test_an_answer_that_cannot_be_put_together_is_an_error_with_a_body() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    origin = Origin(stream_id="s", created=0, part="p")
    sink = BlockingSink(send, _BadFace(), origin, metadata=False)
    await sink.open(StreamHead(stream_id="s", model="m", target="t"))
    with pytest.raises(ValueError, match="none"):
        await sink.finish([], {}, _Plain())  # type: ignore[arg-type]
    assert not sink.ended
    await sink.give_up(RequestError("The router failed.", status=500), code="internal_error")
    assert [one["type"] for one in sent] == ["http.response.start", "http.response.body"]
    assert json.loads(sent[1]["body"])["error"]["message"] == "The router failed."


class _Plain:
    """A report with nothing to tell."""

    eventful = False
    superseded = ()


# -- requests --------------------------------------------------------------------------------------

NO_ADDRESS: Final = "http://[::1"


async def test_an_address_that_is_none_is_no_bug_of_the_router() -> None:
    picture = {"type": "image", "source": {"type": "url", "url": NO_ADDRESS}}
    asked = {
        "model": "chat",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": [picture]}],
    }
    shown = {"type": "image_url", "image_url": {"url": NO_ADDRESS}}
    chat = {"model": "chat", "messages": [{"role": "user", "content": [shown]}]}
    async with house("gemini", route=ONCE) as place:
        url = place.router.base_url
        for path, body in (("messages", asked), ("chat/completions", chat)):
            response = await post(f"{url}/{path}", json=body)
            assert response.status_code == 400
            assert response.json()["error"]["code"] == "unsupported_parameter"
        response = await post(f"{url}/messages/count_tokens", json=asked)
        assert response.status_code in {400, 404}
        assert response.json()["error"]["code"]


async def test_a_large_prompt_is_read_for_counting_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[threading.Thread] = []

    def noted(body: bytes, headers: Mapping[str, str]) -> ChatRequest:
        threads.append(threading.current_thread())
        return real(body, headers)

    real = parse_count_request
    monkeypatch.setattr("router.api.messages.parse_count_request", noted)
    async with house("anthropic", route=ONCE) as place:
        for size in (10, 100_000):
            body = {"model": "chat", "messages": [{"role": "user", "content": "x" * size}]}
            url = f"{place.router.base_url}/messages/count_tokens"
            response = await post(url, json=body)
            assert response.status_code == 200
            assert response.json()["input_tokens"] > 0
    here = threading.current_thread()
    assert [thread is here for thread in threads] == [True, False]


async def test_a_count_that_the_router_fails_at_is_told_in_the_format(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> ChatRequest:
        raise ZeroDivisionError

    monkeypatch.setattr("router.api.messages.parse_count_request", broken)
    async with house("anthropic", route=ONCE) as place:
        url = f"{place.router.base_url}/messages/count_tokens"
        response = await post(url, json={"model": "chat", "messages": PROMPT})
        assert response.status_code == 500
        assert response.json()["type"] == "error"
        assert response.json()["error"]["code"] == "internal_error"


NO_COUNTS: Final = [
    b'{"%b": -1}',
    b'{"%b": 1%b}' % (b"%b", b"0" * 40),
    b'{"x": %b, "%%b": 7}' % (b"[" * 30_000 + b"]" * 30_000),
    b'{"x": %b, "%%b": 7' % (b"[" * 30_000),
    b"[7]",
]


@pytest.mark.parametrize(
    ("family", "field"), [("anthropic", b"input_tokens"), ("gemini", b"totalTokens")]
)
async def test_a_count_that_is_none_is_the_providers_fault(family: str, field: bytes) -> None:
    async with house(family, route=ONCE) as place:
        url = f"{place.router.base_url}/messages/count_tokens"
        for body in NO_COUNTS:
            place.providers[0].manner.raw = RawAnswer(body=body.replace(b"%b", field))
            response = await post(url, json={"model": "chat", "messages": PROMPT})
            assert response.status_code == 502
            assert response.json()["error"]["code"] == "count_failed"


async def test_betas_in_several_lines_are_one_list() -> None:
    async with house("anthropic", route=ONCE) as place:
        url = f"{place.router.base_url}/messages"
        body = {"model": "chat", "max_tokens": 100, "messages": PROMPT}
        betas = [("anthropic-beta", "one"), ("anthropic-beta", "two,three")]
        async with httpx.AsyncClient(trust_env=False) as client:
            response = await client.post(url, json=body, headers=betas)
        assert response.status_code == 200
        assert place.last().headers["anthropic-beta"] == "one,two,three"


# -- arguments of calls ----------------------------------------------------------------------------

_VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab"\\[]{}é\ud83d'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('a"\\{'), inner),
    max_leaves=8,
)
_OBJECTS: Final = st.dictionaries(st.text('a"\\}'), _VALUES)


@given(_OBJECTS, st.booleans(), st.lists(st.integers(0, 200)), st.booleans())
def test_arguments_are_whole_when_their_last_bracket_has_come(
    value: dict[str, Any], escaped: bool, cuts: list[int], asked: bool
) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text) - 1, len(text)]
    call = OpenCall((0, False))
    for start, end in pairwise(edges):
        assert not (asked and call.whole())
        call.follow(text[start:end])
    assert call.whole()
    call.follow(" ")
    assert call.whole()


@pytest.mark.parametrize("text", ["", "  ", "{]", "]", "5", '{"a" 1}', '{"a":"}', "{}{}", '"{}"'])
def test_what_is_no_object_is_never_whole(text: str) -> None:
    call = OpenCall((0, False))
    call.follow(text)
    assert not call.whole()
    call.follow("}")
    assert not call.whole()


@pytest.mark.parametrize("size", [1000, MAX_KEPT_CHARS // 50])
def test_of_long_arguments_the_brackets_are_counted(size: int) -> None:
    call = OpenCall((0, False))
    call.follow('{"a":["')
    for _ in range(100):
        call.follow("]" * size)
        assert not call.whole()
    call.follow('"]')
    assert not call.whole()
    call.follow("}")
    assert call.whole()


def test_a_long_text_that_is_broken_off_is_given_as_it_is() -> None:
    text = '{"a": [' + "1," * 100
    assert read_input(text) == {"a": [1] * 100}
    text += "1," * MAX_BROKEN_CHARS
    assert read_input(text) == {INVALID_JSON: text}
    assert read_input(text + "1]}") == {"a": [1] * (MAX_BROKEN_CHARS + 101)}
