"""The benchmarks work: a tiny run of each, and their arithmetic. What they find is not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common import Answer, Heard, Piece, Spread, quantile, read, table
from benchmarks.failover_pause import FAULTS, Reference, pause_of

ROOT = Path(__file__).resolve().parent.parent


def run(module: str, tmp_path: Path, *options: str) -> dict[str, Any]:
    out = tmp_path / "result.json"
    command = [sys.executable, "-m", f"benchmarks.{module}", "--quick", "--json", str(out)]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("| ")
    found: dict[str, Any] = json.loads(out.read_text())
    assert found["measured"]["machine"]["cores"]
    assert found["measured"]["packages"]["uvloop"]
    return found


def test_failover_pause_sees_one_failover_in_every_stream(tmp_path: Path) -> None:
    plot = tmp_path / "plot.png"
    found = run("failover_pause", tmp_path, "--plot", str(plot))
    cells = found["cells"]
    stores = {cell["store"] for cell in cells}
    assert "memory" in stores
    assert {(c["store"], c["fault"], c["streams"]) for c in cells} == {
        (store, fault, streams) for store in stores for fault in FAULTS for streams in (1, 3)
    }
    for cell in cells:
        assert len(cell["pauses_ms"]) == cell["streams"]
        assert cell["pause_ms"]["median"] > 0
        # The broken sentence is said again, so the first new token is never the second's first.
        assert cell["resaid_tokens"] > 0
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_overhead_compares_the_router_with_every_floor(tmp_path: Path) -> None:
    found = run("overhead", tmp_path)
    compared = {"copy", "parse", "stack", "router"}
    assert set(found["cpu_per_chunk"]) == compared
    assert set(found["first_token_ms"]) == {*compared, "direct"}
    assert all(one["us"]["median"] > 0 for one in found["cpu_per_chunk"].values())
    assert [row["streams"] for row in found["by_streams_us_per_chunk"]] == [1, 3]
    assert [row["tokens"] for row in found["by_length"]] == [50, 200]
    assert set(found["memory"]["bytes"]) == {"4", "8"}


# --- the arithmetic -------------------------------------------------------------------------------


def chunk(text: str, finish: str = "null", more: str = "") -> bytes:
    head = b'data: {"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":%b}]%b}\n\n'
    return head % (text.encode(), finish.encode(), more.encode())


def framed(*events: bytes) -> bytes:
    body = b"".join(events)
    return b"%x\r\n%b\r\n" % (len(body), body)


def heard(*reads: bytes) -> Heard:
    one = Heard(sent_s=10.0)
    for at, data in enumerate(reads, 11):
        one.raw += data
        one.ends.append(len(one.raw))
        one.times_s.append(float(at))
    return one


def test_a_piece_is_there_when_its_last_byte_is() -> None:
    first, second = framed(chunk("a"), chunk("b")), framed(chunk("c"))
    end = framed(chunk("", '"stop"', ',"router":{"x":1}'), b"data: [DONE]\n\n") + b"0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    answer = read(heard(head + first[:-4], first[-4:] + second[:9], second[9:], end))
    # Of `first`, the read in the middle brings only the end of the last event.
    assert answer.pieces == (Piece("a", 11.0), Piece("b", 12.0), Piece("c", 13.0))
    assert answer.router == {"x": 1}
    assert answer.whole
    assert answer.first_token_s == 1.0


@pytest.mark.parametrize(
    "end", [b"", framed(chunk("", '"stop"')), framed(b"data: [DONE]\n\n")], ids=str
)
def test_an_answer_without_its_end_is_not_whole(end: bytes) -> None:
    assert not read(heard(b"HTTP/1.1 200 OK\r\n\r\n" + framed(chunk("a")) + end)).whole


def test_an_error_is_no_stream() -> None:
    with pytest.raises(ValueError, match="no stream"):
        read(heard(b"HTTP/1.1 502 Bad Gateway\r\n\r\n{}"))


def seamed(output_chars: int, committed_chars: int, *, superseded: list[list[int]]) -> Answer:
    pieces = tuple(Piece(text, at) for text, at in [("One. ", 1.0), ("Tw", 1.5), ("o", 4.0)])
    router = {
        "attempts": [{"output_chars": output_chars}, {"output_chars": 0}],
        "failovers": [{"committed_chars": committed_chars}],
        "superseded": superseded,
    }
    return Answer(0.0, pieces, router, whole=True)


def test_the_pause_lies_between_the_attempts_and_is_split_into_its_parts() -> None:
    second = Reference((100.0,), (100.0, 300.0, 700.0))
    pause = pause_of(seamed(7, 4, superseded=[]), second, 500.0)
    # Said again: " " of the first piece (uncommitted), and "Tw". Its own time to the third token.
    assert (pause.pause_ms, pause.resaid_tokens, pause.floor_ms) == (2500.0, 2, 700.0)
    assert pause.router_ms == 1300.0


def test_replaced_text_is_no_clean_failover() -> None:
    with pytest.raises(ValueError, match="clean"):
        pause_of(seamed(7, 4, superseded=[[5, 7]]), Reference((1.0,), (1.0,)), 0.0)


def test_a_spread_holds_its_median() -> None:
    spread = Spread.of([float(value) for value in range(1, 102)])
    assert (spread.n, spread.median, spread.p95) == (101, 51.0, 96.0)
    assert spread.low < 51.0 < spread.high
    assert quantile([1.0, 2.0], 0.25) == 1.25
    assert quantile([7.0], 0.95) == 7.0


def test_a_table_aligns_numbers_to_the_right() -> None:
    assert table(["a", "number"], [["x", 1], ["yyyy", 22]]).splitlines() == [
        "| a    | number |",
        "| ---- | -----: |",
        "| x    |      1 |",
        "| yyyy |     22 |",
    ]


def test_structured_compares_documents_with_text(tmp_path: Path) -> None:
    found = run("structured", tmp_path)
    assert {row["part"] for row in found["parts"]} >= {"reading", "whole values by a schema"}
    assert [row["asked for"] for row in found["router"]] == [
        *("text", "text, `sentences: fast`", "any JSON", "by a schema"),
    ]
    assert all(row["µs per token"] > 0 for row in (*found["parts"], *found["router"]))
