"""The SSE codec: the standard's rules against a naive oracle, every cut, and its bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.sse import (
    MAX_EVENT_BYTES,
    ServerSentEvent,
    SseDecoder,
    encode_comment,
    encode_event,
)
from router.errors import MalformedStream


def decode(*pieces: bytes) -> list[ServerSentEvent]:
    decoder = SseDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.close()


def whole(*pieces: bytes) -> list[tuple[bytes, bytes]]:
    """Name and data of the events that the standard would dispatch."""
    return [
        (event.event, event.data)
        for event in decode(*pieces)
        if not event.stray and not event.unterminated
    ]


def oracle(body: bytes) -> list[tuple[bytes, bytes]]:
    """WHATWG HTML 9.2.6, written as slowly and plainly as it reads there."""
    body = body.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    out, name, data = [], b"", b""
    for line in body.split(b"\n")[:-1]:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if line == b"":
            if data:
                out.append((name, data[:-1]))
            name, data = b"", b""
        elif line.startswith(b":"):
            pass
        elif field == b"event":
            name = value
        elif field == b"data":
            data += value + b"\n"
    return out


LINES = st.sampled_from(
    [
        b"",
        b"",
        b"data: a",
        b"data:b",
        b"data:  c",
        b"data",
        b"data:",
        b"data: \xe2\x80\xa8 \xc2\x85 \x0b\x0c\x1c",
        b"data: \xf0\x9f\x98\x80",
        b": note",
        b":",
        b"event: error",
        b"event",
        b"id: 7",
        b"retry: 9",
        b"error: {}",
        b'{"error": "x"}',
        b"dat",
        b"\xef\xbb\xbf",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    start = draw(st.sampled_from([b"", b"\xef\xbb\xbf", b"\xef\xbb"]))
    lines = draw(st.lists(st.tuples(LINES, ENDS), max_size=25))
    return start + b"".join(line + end for line, end in lines) + draw(LINES)


@given(bodies())
def test_agrees_with_the_standard(body: bytes) -> None:
    assert whole(body) == oracle(body)


@given(bodies(), st.data())
def test_any_cut_gives_the_same_events(body: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert decode(*pieces) == decode(body)
    assert decode(*(body[at : at + 1] for at in range(len(body)))) == decode(body)


def test_an_event_is_given_with_its_last_byte() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\n") == []
    assert decoder.feed(b"\n") == [ServerSentEvent(b"a")]
    assert decoder.feed(b"data: b\r\r") == [ServerSentEvent(b"b")]
    assert decoder.feed(b"\n") == []
    assert decoder.close() == []


def test_a_stray_line_is_given_at_once_and_whole() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b'error: {"code": 500}\n') == [
        ServerSentEvent(b'error: {"code": 500}', stray=True)
    ]
    assert decoder.feed(b'{"error": "x"}\r\n') == [ServerSentEvent(b'{"error": "x"}', stray=True)]


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (b"data: [DONE]", [ServerSentEvent(b"[DONE]", unterminated=True)]),
        (b"data: [DONE]\n", [ServerSentEvent(b"[DONE]", unterminated=True)]),
        (b"event: x\r\ndata: a\rdata: b", [ServerSentEvent(b"a\nb", b"x", unterminated=True)]),
        (b'{"error"', [ServerSentEvent(b'{"error"', stray=True, unterminated=True)]),
        (b": a comm", []),
        (b"data: a\n\n", []),
        (b"event: x\n", []),
        (b"", []),
    ],
)
def test_close_tells_what_was_left(body: bytes, left: list[ServerSentEvent]) -> None:
    decoder = SseDecoder()
    decoder.feed(body)
    assert decoder.close() == left


def test_a_long_line_in_small_pieces() -> None:
    line = b"data: " + b"x" * 1_000_000 + b"\n\n"
    events = decode(*(line[at : at + 4] for at in range(0, len(line), 4)))
    assert events == [ServerSentEvent(b"x" * 1_000_000)]


def feed_all(decoder: SseDecoder, *pieces: bytes) -> list[ServerSentEvent]:
    """Everything that is given before the decoder refuses."""
    events: list[ServerSentEvent] = []
    for piece in pieces:
        if decoder.error is not None:
            break
        try:
            events += decoder.feed(piece)
        except MalformedStream:
            break
    return events


@pytest.mark.parametrize(
    "monster",
    [
        b"data: " + b"x" * 200,
        b"data: " + b"x" * 200 + b"\n\n",
        b"data: x\n" * 20,
        b"data:\n" * 20,
        b"unknown " * 20,
        b"event: " + b"x" * 200 + b"\n",
    ],
)
def test_an_event_beyond_the_bound_is_refused_after_those_before_it(monster: bytes) -> None:
    body = b"data: good\n\n" + monster
    for size in (1, 3, 50, len(body)):
        decoder = SseDecoder(max_event_bytes=100)
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        assert feed_all(decoder, *pieces) == [ServerSentEvent(b"good")]
        assert decoder.error is not None
        with pytest.raises(MalformedStream, match="100 bytes"):
            decoder.feed(b"\n\n")
        with pytest.raises(MalformedStream):
            decoder.close()


def test_what_fits_the_bound_is_taken_for_ever() -> None:
    decoder = SseDecoder(max_event_bytes=100)
    for _ in range(50):
        assert decoder.feed(b"data: " + b"x" * 94 + b"\n\n") == [ServerSentEvent(b"x" * 94)]
    assert decoder.close() == []


def test_comments_do_not_accumulate() -> None:
    decoder = SseDecoder(max_event_bytes=100)
    for _ in range(1000):
        assert decoder.feed(b": processing\n") == []
    decoder.feed(b":" + b"x" * 1000)
    decoder.feed(b"x" * 1000 + b"\n")
    assert decoder.feed(b"data: a\n\n") == [ServerSentEvent(b"a")]


def test_the_default_bound_takes_a_large_event() -> None:
    large = b"x" * (MAX_EVENT_BYTES - len(b"data: "))
    assert decode(b"data: " + large + b"\n\n") == [ServerSentEvent(large)]


@given(st.binary(max_size=60).map(lambda data: data.replace(b"\r", b"\n")))
def test_an_encoded_event_decodes_to_itself(data: bytes) -> None:
    assert whole(encode_event(data)) == [(b"", data)]


def test_encoded_forms() -> None:
    assert encode_event(b"{}") == b"data: {}\n\n"
    assert encode_event(b"a\nb") == b"data: a\ndata: b\n\n"
    assert encode_comment(b"waiting") == b": waiting\n"
    assert encode_comment(b"two\r\nlines") == b": two lines\n"
    assert decode(encode_comment(b"x") * 3) == []


def test_one_whole_event_under_a_name_is_taken_at_once() -> None:
    head, event = b"event: token\ndata: ", b"event: token\ndata: {}\n\n"
    decoder = SseDecoder()
    assert decoder.sole_data(event, head) is None  # a byte order mark may yet come
    decoder.feed(b": ready\n")
    assert decoder.sole_data(event, head) == b"{}"
    assert decoder.sole_data(b"event: other\ndata: {}\n\n", head) is None
    assert decoder.sole_data(b"event: token\ndata: {\ndata: }\n\n", head) is None
    assert decoder.sole_data(b"data: {}\n\n", head) is None
    decoder.feed(b"event: tok")
    assert decoder.sole_data(event, head) is None
