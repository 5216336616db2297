"""`router serve` as a process: its signals, its workers, its log."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from support.caller import called, calling, error_of
from support.processes import Served, served, until_gone
from support.raw import CHAT, connected, post
from support.reading import Answer, check_contract
from support.routers import routed

from router import build
from router.api.server import listen
from router.api.workers import PARENT_VARIABLE
from router.config import parse_config
from router.simulate import Ended, Script, SimulatedProvider, Turnstile, seeded_text

TEXT = seeded_text(11, 900)
OTHER = "Another configuration. Another answer."
SAME = Script(text=TEXT)
PROMPT = "a question that nobody else may read"
KEY, UPSTREAM_KEY = "sk-client-0123456789", "sk-upstream-9876543210"
BEARER = {"authorization": f"Bearer {KEY}"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def written(folder: Path, *providers: SimulatedProvider, drain_s: float = 20, **more: Any) -> Path:  # noqa: ANN401 - sections of a file
    file = folder / "router.yaml"
    write(file, *providers, drain_s=drain_s, **more)
    return file


def write(file: Path, *providers: SimulatedProvider, drain_s: float = 20, **more: Any) -> None:  # noqa: ANN401 - as above
    server = {"drain_s": drain_s, **more.pop("server", {})}
    file.write_text(yaml.safe_dump(routed(*providers, server=server, **more)))


@asynccontextmanager
async def held_stream(url: str, gate: Turnstile, **how: Any) -> AsyncIterator[asyncio.Task[Answer]]:  # noqa: ANN401 - those of `calling`
    """A stream that stands still in the middle, and a task that reads it to its end."""
    async with calling(url, **how) as call:
        await gate.held()
        yield asyncio.create_task(call.answer())


async def refused(url: str) -> None:
    """Wait until nobody listens there any more."""
    where = httpx.URL(url)
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection(where.host, where.port)
            except ConnectionRefusedError:
                return
            writer.close()
            await asyncio.sleep(0.02)


# --- stop -----------------------------------------------------------------------------------------


async def test_a_live_stream_finishes_after_the_signal(tmp_path: Path) -> None:
    gate = Turnstile(60, request=0)
    async with SimulatedProvider(script=SAME, gate=gate) as provider:
        async with served(written(tmp_path, provider)) as router:
            url = await router.base_url()
            async with connected(url) as idle:
                await idle.send(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
                assert (await idle.reply()).status == 200
                async with held_stream(url, gate) as reading:
                    router.process.send_signal(signal.SIGTERM)
                    await refused(url)  # new connections
                    assert await idle.closed() == "fin"  # and those that nobody uses
                    gate.open()
                    answer = await reading
            assert await router.ended() == 0
        assert [one.ended for one in provider.requests] == [Ended.COMPLETED]
    check_contract(answer)
    assert answer.delivered == TEXT


async def test_a_stream_past_the_drain_is_told_and_the_process_ends(tmp_path: Path) -> None:
    gate = Turnstile(60)
    async with SimulatedProvider(script=SAME, gate=gate) as provider:
        async with served(written(tmp_path, provider, drain_s=0.2)) as router:
            async with held_stream(await router.base_url(), gate) as reading:
                router.process.send_signal(signal.SIGTERM)
                answer = await reading
            assert await router.ended() == 0
        assert (await provider.wait_ended()).ended is Ended.CLIENT_CLOSED
    error = error_of(answer)
    assert (error["code"], answer.done, answer.finish_reasons) == ("stream_interrupted", 0, [])
    ends = [line for line in router.log if line["message"] == "stream ended"]
    assert [line["outcome"] for line in ends] == ["router_stopped"]


async def test_a_person_who_asks_twice_does_not_wait(tmp_path: Path) -> None:
    gate = Turnstile(60)
    async with (
        SimulatedProvider(script=SAME, gate=gate) as provider,
        served(written(tmp_path, provider, drain_s=3600)) as router,
    ):
        async with held_stream(await router.base_url(), gate) as reading:
            router.process.send_signal(signal.SIGINT)
            await router.said("stopping")
            router.process.send_signal(signal.SIGINT)
            answer = await reading
        assert await router.ended() == 0
    assert error_of(answer)["code"] == "stream_interrupted"


def test_an_address_that_is_taken_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "set_up_logging", lambda _: None)
    config = parse_config(yaml.safe_dump(routed("http://127.0.0.1:1/v1")), "test.yaml", {})
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        where = {"path": tmp_path, "host": "127.0.0.1", "port": port, "workers": 1}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            assert build.serve(config, **where) == 1
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert f"cannot listen on 127.0.0.1:{port}" in caplog.text


# --- reload ---------------------------------------------------------------------------------------


async def test_a_reload(tmp_path: Path) -> None:
    gate = Turnstile(60, request=0)
    async with (
        SimulatedProvider(script=SAME, gate=gate) as old,
        SimulatedProvider(script=Script(text=OTHER)) as new,
    ):
        file = written(tmp_path, old)
        async with served(file) as router:
            url = await router.base_url()
            async with held_stream(url, gate) as reading:
                limits = {"limits": {"concurrent_streams": 9}}
                write(file, new, drain_s=7, server=limits)
                router.process.send_signal(signal.SIGHUP)
                await router.said("reloaded")
                await router.said("read only at start: server.drain_s, server.limits;")
                answer, _ = await called(url)
                assert answer.delivered == OTHER

                file.write_text("routes: {chat: {targets: []}}\n")
                router.process.send_signal(signal.SIGHUP)
                (refusal,) = await router.said("reload refused")
                assert "router.yaml:" in refusal["message"]
                answer, _ = await called(url)
                assert answer.delivered == OTHER

                gate.open()
                answer = await reading
        assert len(old.requests) == 1
    check_contract(answer)
    assert answer.delivered == TEXT


# --- workers --------------------------------------------------------------------------------------


async def ids(url: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"{url}/models")).status_code == 200


async def test_workers(tmp_path: Path) -> None:
    gate = Turnstile(60, request=0)
    async with (
        SimulatedProvider(script=SAME, gate=gate) as provider,
        served(written(tmp_path, provider), "--workers", "2") as router,
    ):
        url = await router.base_url(listeners=2)
        first = router.children()
        assert len(first) == 2

        # Each of them answers: with one stopped, the other does.
        for asleep in first:
            os.kill(asleep, signal.SIGSTOP)
            await ids(url)
            os.kill(asleep, signal.SIGCONT)

        os.kill(first[0], signal.SIGKILL)
        await router.said("is replaced")
        await router.base_url(listeners=3)
        second = router.children()
        assert len(second) == 2
        assert first[1] in second
        assert first[0] not in second

        router.process.send_signal(signal.SIGHUP)
        await router.said("reloaded", count=2)
        await ids(url)

        async with held_stream(url, gate) as reading:
            router.process.send_signal(signal.SIGTERM)
            await refused(url)
            gate.open()
            answer = await reading
        assert await router.ended() == 0
        await until_gone(second)
    check_contract(answer)
    assert answer.delivered == TEXT
    assert len([line for line in router.log if "is replaced" in line["message"]]) == 1


async def test_a_worker_does_not_outlive_its_parent(tmp_path: Path) -> None:
    # The parent that it is told of is not the process that started it: it is gone.
    env = {PARENT_VARIABLE: "1"}
    with listen("127.0.0.1", 0) as sock:
        fd = sock.fileno()
        async with SimulatedProvider() as provider:
            file = written(tmp_path, provider)
            async with served(file, "--fd", str(fd), env=env, fd=fd) as worker:
                await worker.said("the parent process is gone")
                assert await worker.ended() == 0


async def test_a_stop_in_the_middle_of_the_start_leaves_nobody(tmp_path: Path) -> None:
    async with SimulatedProvider() as provider:
        file = written(tmp_path, provider)
        async with served(file, "--workers", "2") as router:
            await router.said("2 workers on")
            router.process.send_signal(signal.SIGHUP)  # nobody is ready for it: nobody dies of it
            router.process.send_signal(signal.SIGINT)
            assert await router.ended() == 0
    assert "is replaced" not in router.raw_log


# --- what only a process of its own shows ---------------------------------------------------------


async def test_the_log_is_json_and_tells_no_secret(tmp_path: Path) -> None:
    async with (
        SimulatedProvider(script=SAME, api_key=UPSTREAM_KEY) as one,
        SimulatedProvider(script=SAME, api_key=UPSTREAM_KEY) as two,
    ):
        one.set_faults("cut@40")
        config = routed(one, two, types=["vllm", "vllm"], server={"api_keys": ["${CLIENT_KEY}"]})
        for provider in config["providers"].values():
            provider["api_key"] = "${UPSTREAM_KEY}"
        file = tmp_path / "router.yaml"
        file.write_text(yaml.safe_dump(config))
        env = {"CLIENT_KEY": KEY, "UPSTREAM_KEY": UPSTREAM_KEY}
        async with served(file, env=env) as router:
            url = await router.base_url()
            answer, _ = await called(url, content=PROMPT, headers=BEARER)
            check_contract(answer)
            one.set_faults(f"status=401,message=Bad%20key%20{UPSTREAM_KEY}")
            two.set_faults("error@50,message=Boom")
            await called(url, content=PROMPT, headers=BEARER)
            await called(url, content=PROMPT, headers={"authorization": "Bearer sk-wrong-key-1"})
            async with connected(url) as client:
                await client.send(b"\x00\x01 no http\r\n\r\n")
                await client.reply()
            router.process.send_signal(signal.SIGTERM)
            assert await router.ended() == 0
    messages = {line["message"] for line in router.log}
    assert {"attempt ended", "continued", "stream ended", "target ejected"} <= messages
    assert all({"time", "level", "logger", "message"} <= set(line) for line in router.log)
    for secret in (KEY, UPSTREAM_KEY, "sk-wrong", PROMPT, *TEXT.split(". ")[:5]):
        assert secret not in router.raw_log


async def test_what_uvloop_and_memory_have_to_say(tmp_path: Path) -> None:
    gate = Turnstile(60)
    async with (
        SimulatedProvider(script=SAME, gate=gate) as provider,
        served(written(tmp_path, provider)) as router,
    ):
        url = await router.base_url()
        await flooded(url, router)
        assert provider.requests == []
        await left(url, provider)
        lines = await router.said("stream ended", count=2)
        assert [line["outcome"] for line in lines] == ["client_gone"] * 2
        gate.open()
        await upgrade_passed_over(url)


async def flooded(url: str, router: Served) -> None:
    """Three floods, and no memory for them."""

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(800):
            yield b"a" * 65_536

    await ids(url)
    before = router.memory_bytes()
    for content in (b"a" * 50_000_000, endless()):
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            answer = await client.post(f"{url}/chat/completions", content=content)
        assert answer.status_code == 413
    async with connected(url) as raw:
        await raw.send(b"GET / HTTP/1.1\r\nx: " + b"a" * 5_000_000)
        assert (await raw.reply()).status == 431
    # A body may be held up to `max_body_bytes` (10 MiB), twice while it is put together.
    assert router.memory_bytes() - before < 30_000_000


async def left(url: str, provider: SimulatedProvider) -> None:
    """Two clients leave, each in its own way, and both are noticed at once."""
    for number, how in enumerate(("abort", "half")):
        async with connected(url) as client:
            await client.post(CHAT)
            await provider.wait_tokens(60, request=number)
            if how == "abort":
                client.writer.transport.abort()
            else:
                client.writer.write_eof()
            assert (await provider.wait_ended(number)).ended is Ended.CLIENT_CLOSED


async def upgrade_passed_over(url: str) -> None:
    """Java's client offers HTTP/2 on every first request; it is to be answered all the same."""
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2_settings": "AAEA"}
    async with connected(url) as client:
        for head in (offer, {}, offer):
            await client.post(CHAT, **head)
            assert (await client.reply()).body.endswith(b"data: [DONE]\n\n")
        whole = json.dumps(CHAT).encode()
        for data in (
            post(
                b"%x\r\n%b\r\n0\r\n\r\n" % (len(whole), whole), transfer_encoding="chunked", **offer
            ),
            post(CHAT, **offer),
        ):
            for at in range(0, len(data), 40):
                await client.send(data[at : at + 40])
            assert (await client.reply()).body.endswith(b"data: [DONE]\n\n")
