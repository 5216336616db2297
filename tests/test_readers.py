"""The readers of `docs/readers` against the router: both end in the right state, with the same."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.texts import OTHER, seeded
from support.toolcalls import PAY, TOOLS, Bench, bench

from router.simulate import Conduct, Script, tokenize

READERS = Path(__file__).parents[1] / "docs" / "readers"
NODE_MAJOR = 20

TEXT = "🌊 " + next(one.text for one in seeded(seed=6, chars=320) if one.name == "facts")
HALF = len(tokenize(TEXT)) * 3 // 4
CALLS = Script(text="I will.", tool_calls=(PAY,))
CALLED = len(tokenize("I will."))


def load() -> Any:  # noqa: ANN401 - a module
    spec = importlib.util.spec_from_file_location("reader", READERS / "reader.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reader_module = load()
NAMED = {"X-Router-Events": "named"}

CASES: Mapping[str, tuple[dict[str, str], dict[str, Any], str, Script | None, str, str | None]] = {
    # name: headers, fields of the request, fault, script, state, code of the error
    "undisturbed": ({}, {}, "-", None, "completed", None),
    "resumed": ({}, {}, f"cut@{HALF}", None, "completed", None),
    "reworded": ({}, {"model": "other"}, f"cut@{HALF}", None, "completed", None),
    "begun anew": (
        {**NAMED, "X-Router-On-Interrupt": "restart"},
        {},
        f"cut@{HALF}",
        None,
        "completed",
        None,
    ),
    "a part": (
        {"X-Router-On-Interrupt": "partial"},
        {},
        f"cut@{HALF}",
        None,
        "interrupted",
        "partial_complete",
    ),
    "a part, named": (
        {**NAMED, "X-Router-On-Interrupt": "partial"},
        {},
        f"cut@{HALF}",
        None,
        "interrupted",
        "partial_complete",
    ),
    "nobody left": (
        {},
        {"model": "alone"},
        f"cut@{HALF},times=1;cut@1",
        None,
        "interrupted",
        "stream_interrupted",
    ),
    "refused": ({}, {"n": 0}, "-", None, "failed", "integer_below_min_value"),
    "nobody at all": ({}, {"model": "alone"}, "status=503", None, "failed", "all_targets_failed"),
    "a call": ({}, {"tools": TOOLS}, "-", CALLS, "completed", None),
    "half a call": (
        {},
        {"tools": TOOLS},
        f"cut@{CALLED + 3}",
        CALLS,
        "interrupted",
        "tool_call_interrupted",
    ),
    "a whole call, held": (
        {"X-Router-Tool-Calls": "atomic"},
        {"tools": TOOLS},
        f"cut@{CALLED + 3}",
        CALLS,
        "completed",
        None,
    ),
    "usage": ({}, {"stream_options": {"include_usage": True}}, "-", None, "completed", None),
    "reasoning": ({}, {}, "-", Script(text=TEXT, reasoning="Let me see."), "completed", None),
}


def body_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Go."}]
    return {"model": "chat", "messages": messages, "stream": True, **fields}


async def ready(place: Bench, name: str) -> None:
    _, _, fault, script, *_ = CASES[name]
    for at, provider in enumerate(place.providers):
        provider.manner.script = script or Script(text=TEXT, other_text=OTHER)
        provider.manner.conduct = Conduct(prefix="differ" if at == 2 else "continue")
        provider.set_faults(None if at else fault)


def house() -> Any:  # noqa: ANN401 - a context
    """One route over two providers, one to somebody who words the rest otherwise, one to nobody."""
    return bench(
        Script(),
        Script(),
        Script(),
        routes={"chat": (1, 2), "other": (1, 3), "alone": (1,)},
    )


def expected(name: str) -> tuple[str, str | None]:
    *_, state, code = CASES[name]
    return state, code


def check(name: str, seen: Mapping[str, Any]) -> None:
    state, code = expected(name)
    assert seen["state"] == state
    assert (seen["error"] or {}).get("code") == code
    script = CASES[name][3]
    calls = [{"id": PAY.id, "name": PAY.name, "arguments": PAY.arguments}]
    assert seen["tool_calls"] == (calls if script is CALLS and state == "completed" else [])
    if state == "completed" and name != "reworded":
        assert seen["answer"] == (script.text if script else TEXT)
    if name == "reworded":
        assert seen["router"]["superseded"]
        assert seen["answer"].endswith(OTHER)
        assert len(seen["answer"]) < len(seen["text"])
    if name == "begun anew":
        assert seen["text"] == TEXT
        assert seen["resets"] == ["provider_failover"]
    if name.startswith("a part"):
        assert seen["router"]["outcome"] == "partial_complete"
        assert TEXT.startswith(seen["text"])
    if name == "usage":
        assert seen["usage"]["total_tokens"] > 0
    if name == "reasoning":
        assert seen["reasoning"] == "Let me see."


async def read_python(place: Bench, name: str, cuts: Iterator[int]) -> dict[str, Any]:
    headers, fields, *_ = CASES[name]
    async with httpx.AsyncClient(trust_env=False) as client:
        response = await client.post(
            f"{place.router.base_url}/chat/completions", json=body_of(fields), headers=headers
        )
    reader = reader_module.Reader()
    happened: list[tuple[str, Any]] = []
    if response.status_code != 200:
        reader.refuse(response.status_code, response.content)
    else:
        data = response.content
        while data:
            size = next(cuts)
            happened += reader.feed(data[:size])
            data = data[size:]
        reader.close()
    said = "".join(value for kind, value in happened if kind == "text")
    resets = [value for kind, value in happened if kind == "reset"]
    assert said.endswith(reader.text)
    return {
        "state": reader.state.value,
        "error": reader.error,
        "router": reader.router,
        "usage": reader.usage,
        "text": reader.text,
        "answer": reader.answer,
        "reasoning": reader.reasoning,
        "tool_calls": reader.tool_calls,
        "resets": resets,
    }


def sizes(seed: int) -> Iterator[int]:
    """Any sizes of reads, a few bytes each."""
    while True:
        seed = (seed * 1103515245 + 12345) % 2**31
        yield seed % 37 + 1


async def test_the_python_reader() -> None:
    async with house() as place:
        for at, name in enumerate(CASES):
            await ready(place, name)
            check(name, await read_python(place, name, sizes(at)))


def node() -> str:
    """A Node.js that is new enough, or the test is skipped."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("Node.js is not installed")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    major = version.stdout.removeprefix("v").split(".")[0]
    if not major.isdigit() or int(major) < NODE_MAJOR:
        pytest.skip(f"Node.js {NODE_MAJOR} is needed, and this is {version.stdout.strip()!r}")
    return found


DRIVER = """
import { createInterface } from 'node:readline';
const { Reader } = await import(process.argv[2]);
for await (const line of createInterface({ input: process.stdin })) {
  const { url, headers, body } = JSON.parse(line);
  const reader = new Reader();
  const resets = [];
  await reader.read(
    fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    }),
    ([kind, value]) => { if (kind === 'reset') resets.push(value); },
  );
  const { state, error, router, usage, text, answer, reasoning } = reader;
  const told = { state, error, router, usage, text, answer, reasoning, resets };
  process.stdout.write(JSON.stringify({ ...told, tool_calls: reader.toolCalls }) + '\\n');
}
"""


async def test_the_javascript_reader(tmp_path: Path) -> None:
    driver = tmp_path / "driver.mjs"
    driver.write_text(DRIVER)
    process = await asyncio.create_subprocess_exec(
        node(),
        str(driver),
        (READERS / "reader.mjs").as_uri(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with house() as place:
            for name, (headers, fields, *_) in CASES.items():
                await ready(place, name)
                url = f"{place.router.base_url}/chat/completions"
                asked = {"url": url, "headers": headers, "body": body_of(fields)}
                process.stdin.write(json.dumps(asked).encode() + b"\n")
                check(name, json.loads(await process.stdout.readline()))
    finally:
        process.stdin.close()
        assert await process.wait() == 0


# --- what no router sends, or not whole -----------------------------------------------------------

BODY = (
    b": waiting\n"
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"\xc3\x84 b"}}]}\n\n'
    b'id: s:4\ndata: {"choices":[{"index":1,"delta":{"content":"other"}}]}\r\n\r\n'
    b'data: {"choices":[{"index":0,"delta":{"content":"c"},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


@given(st.lists(st.integers(1, len(BODY) - 1), max_size=12, unique=True).map(sorted))
def test_any_split_reads_the_same(cuts: list[int]) -> None:
    reader = reader_module.Reader()
    happened = []
    for start, end in zip([0, *cuts], [*cuts, len(BODY)], strict=True):
        happened += reader.feed(BODY[start:end])
    assert happened == [("text", "Ä b"), ("text", "c"), ("end", reader_module.State.COMPLETED)]
    assert (reader.answer, reader.finish_reason) == ("Ä bc", "stop")


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (b"", "failed"),
        (b": waiting\n", "failed"),
        (BODY[: BODY.index(b"id:")], "interrupted"),
        (BODY[: BODY.index(b"data: [DONE]")], "completed"),
        (b"data: [DONE]\n\n", "failed"),
    ],
)
def test_a_body_that_ends_early(body: bytes, state: str) -> None:
    reader = reader_module.Reader()
    reader.feed(body)
    assert reader.close({"message": "reset", "code": None}).value == state
    assert (reader.error is None) == (state == "completed")
    assert reader.tool_calls == []


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": {"message": "no", "code": "c"}}'])
def test_a_response_that_is_no_stream(body: bytes) -> None:
    reader = reader_module.Reader()
    reader.refuse(502, body)
    assert reader.state is reader_module.State.FAILED
    assert reader.error["message"] in {"HTTP 502", "no"}
