"""Every way to fail, as the socket shows it."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

import pytest
from simulate_kit import USER, ask, connect

from router.simulate import Dialect, Ended, Faults, Misdeed, Script, SimulatedProvider, tokenize

TEXT = "Dr. Vane left at 6 p.m. “Why?” asked nobody. Zwölf Äpfel、三冊。 The end."
SCRIPT = Script(text=TEXT)
TOKENS = tokenize(TEXT)


def sim(
    faults: Faults | None,
    **settings: Any,  # noqa: ANN401 - any of the provider's settings
) -> SimulatedProvider:
    return SimulatedProvider(script=SCRIPT, faults=faults, **settings)


async def instantly(_seconds: float) -> None:
    """Time that costs none, but lets others run."""
    await asyncio.sleep(0)


@pytest.mark.parametrize("kind", ["cut", "rst"])
@pytest.mark.parametrize("at", [0, 1, 7, len(TOKENS)])
async def test_a_cut_after_every_so_many_tokens(kind: str, at: int) -> None:
    async with sim(f"{kind}@{at}") as provider:
        reply = await ask(provider)
        assert reply.pieces == TOKENS[:at]
        assert (reply.finish, reply.done) == (None, False)
        assert reply.how == {"cut": "fin", "rst": "rst"}[kind]
        record = await provider.wait_ended()
        assert (record.ended, record.tokens_sent, record.fault) == (
            Ended.CUT,
            at,
            Misdeed(kind),
        )


async def test_a_place_beyond_the_end_is_never_reached() -> None:
    async with sim(f"cut@{len(TOKENS) + 1}") as provider:
        reply = await ask(provider)
        assert (reply.text, reply.done) == (TEXT, True)


async def test_a_cut_inside_a_chunk_of_many_tokens() -> None:
    async with sim("cut@5", dialect=Dialect(tokens_per_chunk=3)) as provider:
        assert (await ask(provider)).pieces == ["".join(TOKENS[:3]), "".join(TOKENS[3:5])]


async def test_a_cut_at_every_byte() -> None:
    async with SimulatedProvider(script=Script(text="Ja, drei Äpfel.")) as provider:
        whole = (await ask(provider)).body
        for at in range(len(whole) + 1):
            cut = await ask(provider, _headers={"x-simulate": f"cut_byte@{at}"})
            same = whole.replace(b"sim000000", b"sim%06d" % (at + 1))
            assert (cut.body, cut.how) == (same[:at], "fin")
        assert provider.requests[-1].ended is Ended.CUT


@pytest.mark.parametrize(("form", "how"), [("fin", "fin"), ("rst", "rst"), ("end", "end")])
async def test_a_cut_at_a_byte_ends_as_told(form: str, how: str) -> None:
    async with sim(f"cut_byte@60,form={form}") as provider:
        reply = await ask(provider)
        assert (len(reply.body), reply.how) == (60, how)


@pytest.mark.parametrize(("fault", "how"), [("reset", "rst"), ("close", "fin")])
async def test_an_end_before_the_headers(fault: str, how: str) -> None:
    async with sim([fault]) as provider:
        reply = await ask(provider)
        assert (reply.status, reply.how) == (0, how)
        assert (await ask(provider)).text == TEXT


@pytest.mark.parametrize(
    ("fault", "events"),
    [
        ("silent", None),
        ("slow_header,every_s=0", None),
        ("role_then_silence", 1),
        ("stall@4", 5),
        ("keepalive_forever@3", 4),
        ("keepalive_forever,form=empty", 9),
        ("keepalive_forever,form=role", 9),
        ("after_done_forever", len(TOKENS) + 3),
        ("after_done_forever,form=silence", len(TOKENS) + 3),
        ("cut_byte@0,form=stall", 0),
    ],
)
async def test_what_never_ends_ends_with_the_client(fault: str, events: int | None) -> None:
    async with sim(fault, sleep=instantly) as provider:
        async with connect(provider) as caller:
            await caller.send()
            await provider.wait_requests(1)
            if events is not None:
                reply = await caller.read(until=lambda r: len(r.events) >= events and r.status > 0)
                assert (reply.status, reply.how) == (200, "")
        assert (await provider.wait_ended()).ended is Ended.CLIENT_CLOSED
        await provider.wait_connections(0)


async def test_keepalives_are_comments_without_content() -> None:
    async with sim("keepalive_forever@2", sleep=instantly) as provider, connect(provider) as caller:
        await caller.send()
        reply = await caller.read(until=lambda r: r.body.count(b": keep-alive\n\n") >= 5)
        assert reply.pieces == TOKENS[:2]


async def test_a_stall_may_be_over() -> None:
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with sim("stall@4,for_s=30", sleep=sleep) as provider:
        reply = await ask(provider)
        assert (reply.text, reply.done, slept) == (TEXT, True, [30.0])


async def test_an_error_status_with_all_its_fields() -> None:
    fault = "status=429,retry_after=2,code=slow,type=rate,param=model,message=Not%20now.,times=1"
    async with sim(f"{fault},header=x-left:0") as provider:
        reply = await ask(provider)
        assert (reply.status, reply.headers["retry-after"], reply.headers["x-left"]) == (
            429,
            "2",
            "0",
        )
        assert reply.body == (
            b'{"error":{"message":"Not now.","type":"rate","param":"model","code":"slow"}}'
        )
        assert (await ask(provider)).text == TEXT
        assert [r.ended for r in provider.requests] == [Ended.REJECTED, Ended.COMPLETED]


@pytest.mark.parametrize(
    ("alias", "status"),
    [
        ("rate_limit", 429),
        ("context_length", 400),
        ("content_policy", 400),
        ("unauthorized", 401),
        ("no_model", 404),
        ("status=503", 503),
        ("redirect", 307),
    ],
)
async def test_common_refusals(alias: str, status: int) -> None:
    async with sim(alias) as provider, connect(provider) as caller:
        assert (await caller.ask()).status == status
        assert (await caller.ask()).status == status  # the connection lives on


async def test_a_page_and_a_document_in_place_of_a_stream() -> None:
    async with sim(["html", "html,content_type=text/event-stream", "json"]) as provider:
        page = await ask(provider)
        assert (page.headers["content-type"][:9], page.body[:9]) == ("text/html", b"<!DOCTYPE")
        assert (await ask(provider)).headers["content-type"] == "text/event-stream"
        document = await ask(provider)
        assert document.headers["content-type"] == "application/json"
        assert document.body.startswith(b'{"id":"chatcmpl-sim000002","object":"chat.completion",')


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("object", b'data: {"error":{"message":"Busy","type":"server_error","param":null'),
        ("choices", b'"choices":[],"error":{"message":"Busy"'),
        ("event", b"event: error\ndata: {"),
        ("string", b'data: {"error":"Busy"}'),
        ("flat", b'data: {"error":"Busy","error_type":"server_error"}'),
        ("field", b'\n\nerror: {"message":"Busy"'),
    ],
)
@pytest.mark.parametrize("kind", ["error", "error_then_done"])
async def test_an_error_in_the_stream(kind: str, form: str, shown: bytes) -> None:
    async with sim(f"{kind}@3,status=503,message=Busy,form={form}") as provider:
        reply = await ask(provider)
        assert shown in reply.body
        assert reply.body.count(b'"content":') == 4
        assert reply.done is (kind == "error_then_done")
        assert reply.how == "end"
        assert (await provider.wait_ended()).ended is Ended.FAILED


async def test_one_event_is_broken_and_the_rest_is_fine() -> None:
    async with sim("malformed@4") as provider:
        reply = await ask(provider)
        reply_events = reply.events
        with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
            _ = reply.chunks
        bad = reply_events.pop(5)
        reply.body = "".join(f"data: {event}\n" for event in reply_events).encode()
        assert not bad.endswith("}")
        assert reply.pieces == TOKENS[:4] + TOKENS[5:]
        assert (reply.finish, reply.done) == ("stop", True)


async def test_a_line_without_an_end() -> None:
    async with sim("big_line@1,size_bytes=200000") as provider:
        reply = await ask(provider)
        assert max(map(len, reply.body.split(b"\n"))) == 200_000 + len("data: ")
        assert reply.how == "end"


@pytest.mark.parametrize(
    ("fault", "tokens", "finish", "done", "how"),
    [
        ("no_finish@4", 4, None, False, "end"),
        ("no_finish", len(TOKENS), None, False, "end"),
        ("done_early@4", 4, None, True, "end"),
        ("done_only", 0, None, True, "end"),
        ("no_done", len(TOKENS), "stop", False, "end"),
        ("cut_after_finish", len(TOKENS), "stop", False, "fin"),
        ("empty", 0, "stop", True, "end"),
        ("filtered", 0, "content_filter", True, "end"),
        ("filtered@4", 4, "content_filter", True, "end"),
        ("finish_error@4", 4, "error", True, "end"),
        ("finish_error@4,reason=network_error", 4, "network_error", True, "end"),
    ],
)
async def test_ends_that_are_none(
    fault: str, tokens: int, finish: str | None, done: bool, how: str
) -> None:
    async with sim(fault) as provider:
        reply = await ask(provider)
        assert (reply.pieces, reply.finish, reply.done, reply.how) == (
            TOKENS[:tokens],
            finish,
            done,
            how,
        )


async def test_a_compressed_body() -> None:
    async with sim("gzip") as provider:
        reply = await ask(provider)
        assert reply.headers["content-encoding"] == "gzip"
        reply.body = zlib.decompress(reply.body, wbits=31)
        assert (reply.text, reply.done) == (TEXT, True)


@pytest.mark.parametrize(("delta", "how"), [(1000, "fin"), (-20, "end")])
async def test_a_length_that_lies(delta: int, how: str) -> None:
    async with sim(f"bad_length,delta={delta}") as provider:
        reply = await ask(provider)
        assert reply.how == how
        assert int(reply.headers["content-length"]) == (len(reply.body) + max(0, delta))


async def test_a_blocking_answer_is_cut_in_its_middle() -> None:
    async with sim(["cut", "rst", "error,status=502", "stall,for_s=0"]) as provider:
        assert (await ask(provider, stream=False)).how == "fin"
        assert (await ask(provider, stream=False)).how == "rst"
        assert (await ask(provider, stream=False)).status == 502
        assert (await ask(provider, stream=False)).how == "end"


async def test_a_provider_goes_down_and_comes_back() -> None:
    async with sim(None) as provider, connect(provider) as idle:
        assert (await idle.ask()).text == TEXT
        provider.go_down()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(provider.host, provider.port)
        await provider.wait_connections(0)
        await provider.come_back()
        assert (await ask(provider)).text == TEXT


async def test_it_may_be_down_from_the_start() -> None:
    woken = asyncio.Event()

    async def sleep(seconds: float) -> None:
        assert seconds == 60
        await woken.wait()

    async with sim("refuse,until_s=60", sleep=sleep, clock=lambda: 60.0 * woken.is_set()) as down:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(down.host, down.port)
        woken.set()
        await down.wait_listening()
        assert (await ask(down)).text == TEXT


async def test_a_request_takes_it_down() -> None:
    async with sim(None) as provider:
        assert (await ask(provider, model="sim!refuse")).how == "rst"
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(provider.host, provider.port)


async def test_faults_can_be_changed_while_it_runs() -> None:
    async with sim("status=503") as provider:
        assert (await ask(provider)).status == 503
        provider.set_faults(["cut@1"])
        assert (await ask(provider)).how == "fin"
        assert (await ask(provider)).how == "end"
        provider.set_faults("status=500")
        assert (await ask(provider)).status == 500


@pytest.mark.parametrize("kind", [k for k in Misdeed if k is not Misdeed.REFUSE])
async def test_after_every_misdeed_the_next_request_is_healthy(kind: Misdeed) -> None:
    async with sim([f"{kind},size_bytes=1000"], sleep=instantly) as provider:
        async with connect(provider) as caller:
            await caller.send()
            await provider.wait_requests(1)
        await provider.wait_ended()
        reply = await ask(provider)
        assert (reply.text, reply.done) == (TEXT, True)
        assert provider.requests[0].fault is kind
        await provider.wait_connections(0)


async def test_old_clients_get_a_body_without_chunks() -> None:
    async with sim("cut@2") as provider, connect(provider) as caller:
        body = b'{"stream": true, "messages": [{"role": "user", "content": "x"}]}'
        head = b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
        caller.writer.write(head + body)
        answer = await caller._reader.read()
        assert b"Transfer-Encoding" not in answer
        assert answer.count(b"data: ") == 3


async def test_the_prefix_of_a_failed_request_is_recorded() -> None:
    async with sim("cut@2") as provider:
        tail = {"role": "assistant", "content": "Dr. Vane"}
        reply = await ask(provider, messages=[USER, tail])
        assert reply.text == "".join(tokenize(TEXT[len("Dr. Vane") :])[:2])
        record = await provider.wait_ended()
        assert (record.prefix, record.ended) == ("Dr. Vane", Ended.CUT)
