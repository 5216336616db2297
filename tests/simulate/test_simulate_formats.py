"""Every format misbehaves alike: the same orders strike at the same places in all of them."""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import Any

import pytest
from formats_kit import FORMATS, Format
from simulate_kit import connect

from router.simulate import (
    Dialect,
    Ended,
    Faults,
    Misdeed,
    Script,
    SimulatedProvider,
    Turnstile,
    parse_dialect,
    tokenize,
)

TEXT = "Dr. Vane left at 6 p.m. “Why?” asked nobody. Zwölf Äpfel、三冊。 The end."
TOKENS = tokenize(TEXT)

every_format = pytest.mark.parametrize("form", FORMATS, ids=str)


def sim(faults: Faults | None = None, **settings: Any) -> SimulatedProvider:  # noqa: ANN401 - any of the provider's settings
    return SimulatedProvider(script=Script(text=TEXT), faults=faults, **settings)


async def instantly(_seconds: float) -> None:
    """Time that costs none, but lets others run."""
    await asyncio.sleep(0)


@every_format
async def test_a_stream_is_the_text_token_by_token(form: Format) -> None:
    async with sim() as provider:
        reply = await form.ask(provider)
        assert (reply.status, reply.how) == (200, "end")
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert form.pieces(reply) == TOKENS
        assert (form.finish(reply), form.marked(reply)) == (form.words["stop"], True)
        record = await provider.wait_ended()
        assert (record.ended, record.tokens_sent) == (Ended.COMPLETED, len(TOKENS))
        assert (record.model, record.stream, record.messages) == ("sim", True, 1)
        assert record.bytes_sent == len(reply.body)


@every_format
async def test_a_whole_answer_is_the_same(form: Format) -> None:
    async with sim() as provider:
        reply = await form.ask(provider, stream=False)
        assert reply.headers["content-type"] == "application/json"
        assert form.text(json.loads(reply.body)) == TEXT
        assert (await provider.wait_ended()).stream is False


@every_format
@pytest.mark.parametrize(("kind", "how"), [("cut", "fin"), ("rst", "rst")])
@pytest.mark.parametrize("at", [0, 1, 7, len(TOKENS)])
async def test_a_cut_after_every_so_many_tokens(form: Format, kind: str, how: str, at: int) -> None:
    async with sim(f"{kind}@{at}") as provider:
        reply = await form.ask(provider)
        assert (form.pieces(reply), form.finish(reply)) == (TOKENS[:at], None)
        assert reply.how == how
        record = await provider.wait_ended()
        assert (record.ended, record.tokens_sent) == (Ended.CUT, at)


@every_format
async def test_a_cut_at_every_byte(form: Format) -> None:
    async with SimulatedProvider(script=Script(text="Ja, drei Äpfel.")) as provider:
        whole = (await form.ask(provider)).body
        for at in range(len(whole) + 1):
            cut = await form.ask(provider, _headers={"x-simulate": f"cut_byte@{at}"})
            same = whole.replace(b"sim000000", b"sim%06d" % (at + 1))
            assert (cut.body, cut.how) == (same[:at], "fin")


@every_format
@pytest.mark.parametrize(
    ("fault", "tokens"),
    [
        ("silent", None),
        ("role_then_silence", 0),
        ("stall@4", 4),
        ("keepalive_forever@3", 3),
        ("keepalive_forever@3,form=empty", 3),
        ("keepalive_forever@3,form=role", 3),
        ("keepalive_forever@3,form=comment", 3),
        ("after_done_forever", len(TOKENS)),
    ],
)
async def test_what_never_ends_ends_with_the_client(
    form: Format, fault: str, tokens: int | None
) -> None:
    async with sim(fault, sleep=instantly) as provider:
        async with connect(provider) as caller:
            await caller.send(**form.request())
            await provider.wait_requests(1)
            if tokens is not None:
                reply = await caller.read(
                    until=lambda r: r.status > 0 and len(form.pieces(r)) >= tokens
                )
                assert "".join(form.pieces(reply)) == "".join(TOKENS[:tokens])
        assert (await provider.wait_ended()).ended is Ended.CLIENT_CLOSED


@every_format
@pytest.mark.parametrize(
    ("fault", "tokens", "finish", "marked"),
    [
        ("no_finish@4", 4, None, False),
        ("no_finish", len(TOKENS), None, False),
        ("done_early@4", 4, None, True),
        ("done_only", 0, None, True),
        ("no_done", len(TOKENS), "stop", False),
        ("cut_after_finish", len(TOKENS), "stop", False),
        ("empty", 0, "stop", True),
        ("filtered@4", 4, "content_filter", True),
        ("finish_error@4", 4, "error", True),
        ("error@4", 4, None, False),
        ("error_then_done@4", 4, None, True),
    ],
)
async def test_ends_that_are_none(
    form: Format, fault: str, tokens: int, finish: str | None, marked: bool
) -> None:
    async with sim(fault) as provider:
        reply = await form.ask(provider)
        assert form.pieces(reply) == TOKENS[:tokens]
        assert reply.how == ("fin" if fault == "cut_after_finish" else "end")
        assert form.finish(reply) == (form.words[finish] if finish else None)
        assert form.marked(reply) is (marked if form.has_marker else finish is not None)


@every_format
async def test_one_event_is_broken_and_the_rest_is_fine(form: Format) -> None:
    async with sim("malformed@4") as provider:
        reply = await form.ask(provider)
        events = reply.body.split(b"\n\n")
        broken = []
        for event in events[:-1]:
            try:
                json.loads(event.partition(b"data: ")[2].replace(b"[DONE]", b"0"))
            except ValueError:
                broken.append(event)
        assert len(broken) == 1
        reply.body = b"\n\n".join(event for event in events if event not in broken)
        assert form.pieces(reply) == TOKENS[:4] + TOKENS[5:]
        assert form.marked(reply)


@every_format
async def test_a_page_and_a_document_in_place_of_a_stream(form: Format) -> None:
    async with sim(["html", "json"]) as provider:
        assert (await form.ask(provider)).body.startswith(b"<!DOCTYPE")
        document = await form.ask(provider)
        assert document.headers["content-type"] == "application/json"
        assert form.text(json.loads(document.body)) == TEXT


@every_format
async def test_the_whole_body_compressed_or_of_a_wrong_length(form: Format) -> None:
    async with sim(["gzip", "bad_length"]) as provider:
        reply = await form.ask(provider)
        assert reply.headers["content-encoding"] == "gzip"
        reply.body = zlib.decompress(reply.body, wbits=31)
        assert form.pieces(reply) == TOKENS
        assert (await form.ask(provider)).how == "fin"


@every_format
async def test_a_whole_answer_is_cut_in_its_middle(form: Format) -> None:
    async with sim(["cut", "rst", "error,status=503", "filtered"]) as provider:
        assert (await form.ask(provider, stream=False)).how == "fin"
        assert (await form.ask(provider, stream=False)).how == "rst"
        assert (await form.ask(provider, stream=False)).status == 503
        assert (await form.ask(provider, stream=False)).status == 200


@every_format
@pytest.mark.parametrize("kind", [k for k in Misdeed if k is not Misdeed.REFUSE])
async def test_after_every_misdeed_the_next_request_is_healthy(form: Format, kind: Misdeed) -> None:
    async with sim([f"{kind},size_bytes=1000"], sleep=instantly) as provider:
        async with connect(provider) as caller:
            await caller.send(**form.request())
            await provider.wait_requests(1)
        await provider.wait_ended()
        assert form.pieces(await form.ask(provider)) == TOKENS
        assert provider.requests[0].fault is kind


@every_format
@pytest.mark.parametrize(
    "words",
    [
        "crlf",
        "cr",
        "no_space",
        "bom",
        "comment_every=2",
        "ascii_json",
        "tokens_per_chunk=3",
        "text_in_finish",
        "finish_twice",
        "bare_finish,no_role,azure_first,error_null,usage_every_chunk,usage_null",
        "no_usage",
    ],
)
async def test_each_shape_of_a_healthy_stream(form: Format, words: str) -> None:
    async with sim(dialect=parse_dialect(words)) as provider:
        reply = await form.ask(provider)
        reply.body = reply.body.removeprefix("\ufeff".encode())
        assert "".join(form.pieces(reply)) == TEXT
        assert (form.finish(reply), form.marked(reply)) == (form.words["stop"], True)


@every_format
async def test_the_finish_may_have_another_name(form: Format) -> None:
    async with sim(dialect=Dialect(finish_word="eos")) as provider:
        assert form.finish(await form.ask(provider)) == "eos"


@every_format
async def test_writes_of_a_few_bytes_give_the_same_body(form: Format) -> None:
    async with sim() as provider:
        whole = await form.ask(provider)
        split = await form.ask(provider, _headers={"x-simulate": "write_bytes=7"})
        assert split.body.replace(b"sim000001", b"sim000000") == whole.body


@every_format
async def test_a_request_orders_its_own_conduct_in_the_models_name(form: Format) -> None:
    async with sim() as provider:
        reply = await form.ask(provider, model="sim!cut@3!tokens_per_s=1000")
        assert (form.pieces(reply), reply.how) == (TOKENS[:3], "fin")
        assert (await provider.wait_ended()).model == "sim"


@every_format
async def test_a_turnstile_holds_a_stream(form: Format) -> None:
    gate = Turnstile(3)
    async with sim(gate=gate) as provider, connect(provider) as caller:
        await caller.send(**form.request())
        await gate.held()
        assert provider.requests[0].tokens_sent == 3
        gate.open()
        assert form.pieces(await caller.read()) == TOKENS


@every_format
async def test_a_key_is_required_where_the_vendor_has_it(form: Format) -> None:
    async with sim(api_key="sk-sim") as provider:
        refused = await form.ask(provider)
        assert refused.status == form.refused_key
        for header, value in form.keys.items():
            assert (await form.ask(provider, _headers={header: value + "sk-sim"})).status == 200
            wrong = await form.ask(provider, _headers={header: value + "sk-other"})
            assert (wrong.status, wrong.body) == (refused.status, refused.body)
