"""The soak works: a run of seconds holds all it should, and its judges see what is wrong."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.redis_servers import BINARY

from benchmarks.soak_client import Client, Entry, Log, Reply, take_apart
from benchmarks.soak_provider import FAULTS, TOPICS, draw
from benchmarks.soak_watch import Audit, Slope, labelled, plain_of
from router.simulate import parse_directives

ROOT = Path(__file__).resolve().parent.parent


def chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the same every time, on purpose


SHORT = TOPICS[0]
CALL = next(topic for topic in TOPICS if topic.calls)


@pytest.mark.skipif(BINARY is None, reason="there is no redis-server")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_run_of_seconds_holds(tmp_path: Path) -> None:
    out = tmp_path / "soak.json"
    command = [sys.executable, "-m", "benchmarks.soak", "--quick", "--json", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("| must hold")
    found: dict[str, Any] = json.loads(out.read_text())
    assert found["seen"]["completed"] > 10
    assert found["books"]["rows"] == sum(found["books"]["counted"].values())
    assert {kind.split()[-1] for kind in found["slopes"]} >= {"rss_mib", "fds", "tasks", "keys"}


# --- the client's judgement -----------------------------------------------------------------------


def event(content: str = "", finish: str = "null", more: str = "") -> bytes:
    text = '{"choices":[{"index":0,"delta":{"content":%s},"finish_reason":%s}]%s}'
    return b"data: " + (text % (json.dumps(content), finish, more)).encode() + b"\n\n"


def response(*events: bytes, whole: bool = True) -> bytes:
    start = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    start += b"Transfer-Encoding: chunked\r\n\r\n"
    # Chunks that do not end where events do.
    body = b"".join(events)
    parts = [body[at : at + 7] for at in range(0, len(body), 7)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return start + chunks + (b"0\r\n\r\n" if whole else b"")


END = (event(finish='"stop"'), b"data: [DONE]\n\n")


def judged(raw: bytes, *, topic: Any = SHORT, left: bool = False) -> tuple[Log, Reply]:  # noqa: ANN401 - a topic
    log = Log()
    reply = take_apart(raw, left=left)
    Client([], "", log, chance(1))._judge(topic, reply, reply.text)
    return log, reply


def test_a_right_answer_is_right() -> None:
    half = len(SHORT.text) // 2
    said = [event(SHORT.text[:half]), b": waiting\n", event("twice" + SHORT.text[half:])]
    facts = f',"router":{{"superseded":[[{half},{half + 5}]]}}'
    log, reply = judged(response(*said, event("", '"stop"', facts), END[1]))
    assert not log.wrong, log.examples
    assert (reply.finishes, reply.dones, reply.whole) == (1, 1, True)


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (response(event(SHORT.text), whole=False), "silent end"),
        (response(event(SHORT.text)), "silent end"),
        (response(event(SHORT.text), END[0]), "ends"),
        (response(event(SHORT.text), *END, END[1]), "ends"),
        (response(event(SHORT.text[:-1]), *END), "text"),
        (response(event(SHORT.text + " "), *END), "text"),
        (
            response(b'data: {"error":{"code":"internal_error","message":""}}\n\n'),
            "internal error",
        ),
        (
            response(
                event("Not this."),
                b'data: {"error":{"code":"stream_interrupted","router":{"superseded":[]}}}\n\n',
            ),
            "text so far",
        ),
    ],
)
def test_what_is_wrong_is_seen(raw: bytes, what: str) -> None:
    log, _ = judged(raw)
    assert list(log.wrong) == [what]


def test_a_call_that_came_twice_is_seen() -> None:
    (call,) = CALL.calls
    function = {"name": call.name, "arguments": call.arguments}
    delta = {"tool_calls": [{"index": 0, "function": function}]}
    chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    said = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    log, _ = judged(response(event(CALL.text), said, *END), topic=CALL)
    assert not log.wrong, log.examples
    log, _ = judged(response(event(CALL.text), said, said, *END), topic=CALL)
    assert list(log.wrong) == ["tool calls"]


def test_who_left_judges_nothing() -> None:
    log, reply = judged(response(event(SHORT.text[:9]), whole=False), left=True)
    assert (reply.text, dict(log.wrong)) == (SHORT.text[:9], {})
    assert judged(b"HTTP/1.1 200 OK\r\nX", left=True)[1].status == 0


# --- the books ------------------------------------------------------------------------------------


def row(outcome: str, chars: int = 5, route: str = "short") -> dict[str, Any]:
    counts = {"delivered_chars": chars, "committed_chars": chars}
    return {"stream_id": "a", "route": route, "outcome": outcome, **counts}


def audited(entries: Sequence[Entry], rows: Sequence[dict[str, Any]]) -> tuple[Log, Audit]:
    log = Log(open={"a": list(entries)})
    audit = Audit(log, "", waiting={"a": list(rows)})
    audit._settle()
    return log, audit


WHOLE = Entry("short", frozenset({"completed"}), 5)
LEFT = Entry("short", frozenset(), None)


def test_rows_are_matched_whatever_their_order() -> None:
    log, audit = audited([LEFT, WHOLE], [row("completed"), row("client_gone", 2)])
    assert not log.wrong
    assert set(audit.close().values()) == {0}


@pytest.mark.parametrize(
    "wrong",
    [
        row("client_gone"),
        row("completed", 6),
        row("completed", route="long"),
        row("internal_error"),
    ],
)
def test_a_row_that_says_otherwise_is_seen(wrong: dict[str, Any]) -> None:
    assert list(audited([WHOLE], [wrong])[0].wrong) == ["books"]


def test_what_one_side_alone_knows_is_left_over() -> None:
    _, audit = audited([WHOLE, LEFT], [row("completed")])
    assert audit.close()["requests without a row"] == 1
    _, audit = audited([], [row("record_fenced")])
    audit.log.open.clear()
    assert audit.close()["rows without a request"] == 1


@pytest.mark.parametrize(("outcome", "lost"), [("completed", 0), ("client_gone", 1)])
def test_a_stream_that_was_not_to_be_found_was_completed_or_was_lost(
    outcome: str, lost: int
) -> None:
    log = Log(open={"a": [LEFT]}, unknown={"a"})
    audit = Audit(log, "", waiting={"a": [row(outcome)]})
    audit._settle()
    assert audit.close()["interrupted and not found"] == lost
    assert audit.close()["resumed too late, as it was completed"] == 1 - lost


def test_a_stream_that_was_not_to_be_found_is_judged_by_all_its_requests() -> None:
    """Who came back twice at once was served once: the row of that comes later than the refusal."""
    log = Log(open={"a": [LEFT]})
    audit = Audit(log, "", waiting={"a": [row("client_gone", 2)]})
    audit._settle()
    log.open["a"], log.unknown = [WHOLE], {"a"}
    audit._settle()
    assert audit.close()["interrupted and not found"] == 0
    audit.waiting["a"] = [row("completed")]
    audit._settle()
    assert audit.close()["interrupted and not found"] == 0
    assert audit.close()["resumed too late, as it was completed"] == 1


# --- the arithmetic -------------------------------------------------------------------------------


def test_a_rise_is_told_from_noise() -> None:
    times = [float(at) for at in range(0, 3600, 10)]
    rng = chance(2)
    flat = Slope.through(times, [100 + rng.random() for _ in times])
    assert flat.rise < 0.2
    leak = Slope.through(times, [100 + at / 360 + rng.random() for at in times])
    assert leak.per_hour == pytest.approx(10, abs=0.5)
    assert leak.rise == pytest.approx(10, abs=0.7)
    assert (round(leak.first), round(leak.last)) == (100, 110) or leak.last > 110


def test_series_are_added_up_by_a_label() -> None:
    series = {'n{a="x",w="1"}': 2.0, 'n{a="x",w="2"}': 3.0, 'n{a="y",w="1"}': 1.0, "nn": 9.0}
    assert labelled(series, "n", "a") == {"x": 5, "y": 1}
    assert plain_of(series, "n") == 6


def test_every_fault_can_be_drawn() -> None:
    rng = chance(3)
    drawn = [draw(rng, 50) for _ in range(5_000)]
    kinds = {fault.kind for one in drawn for fault in one.faults}
    wanted = (parse_directives(spec.format(at=1, byte=1)).faults[0].kind for _, spec in FAULTS)
    assert kinds == set(wanted)
    assert 0.65 < sum(not one.faults for one in drawn) / len(drawn) < 0.75
