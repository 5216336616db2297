"""The demo: what it shows is what happened, on a terminal, in a log, and in its exit code."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.cli import main
from router.core.commit import CommitMachine
from router.core.faults import Fault, FaultKind
from router.demo.client import Heard
from router.demo.layout import cells, wrap
from router.demo.play import Ink, Piece, Play
from router.demo.screen import MARGIN, Log, Terminal, make_screen
from router.demo.show import Act, perform
from router.demo.stage import FAST, Tempo
from router.demo.story import ANSWER, MAX_TEXT_BYTES, agreeing, differing, sentences
from router.demo.verdict import checks, pretty, told
from router.engine.observe import AttemptEnded, AttemptStarted, Committed, Joined, StreamEnded
from router.engine.report import AttemptReport, FailoverReport, StreamReport
from router.simulate import parse_fault, seeded_text, tokenize

DEMO = [sys.executable, "-m", "router", "demo"]
READ_BYTES = 65_536


def words(text: str) -> str:
    """Text without its line breaks and margins."""
    return " ".join(text.split())


# --- the whole of it ------------------------------------------------------------------------------


def test_two_acts_in_a_log() -> None:
    ran = subprocess.run(
        [*DEMO, "--fast", "--plain"], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert not ran.stderr
    assert "\x1b" not in ran.stdout
    shown = re.sub(r"[\d.]+ ms", "N ms", words(ran.stdout))
    assert "{On the voyage to Jamaica in 1761 his H4 lost only 5.}⟨cut N ms⟩1 seconds in" in shown
    assert "[-The Earth turns 15 degrees an hour, so a clock that is wrong by four" in shown
    assert "puts the ship 60-] ⟨cut N ms⟩ Every hour the Earth turns by 15 degrees:" in shown
    assert "The answer equals the uncut one: yes." in shown
    assert "The answer equals the fallback's own, uncut: yes." in shown
    assert "NO" not in ran.stdout


def test_no_terminal_and_no_color_are_plain() -> None:
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(make_screen(io.StringIO(), {"TERM": "xterm"}, plain=False), Log)
    assert isinstance(make_screen(Tty(), {"TERM": "xterm", "NO_COLOR": "1"}, plain=False), Log)
    assert isinstance(make_screen(Tty(), {"TERM": "dumb"}, plain=False), Log)
    assert isinstance(make_screen(Tty(), {"TERM": "xterm"}, plain=True), Log)
    assert isinstance(make_screen(Tty(), {"TERM": "xterm", "NO_COLOR": ""}, plain=False), Terminal)


@pytest.mark.parametrize(
    ("fault", "label"),
    [
        ("rst", "cut"),
        ("stall", "idle_timeout"),
        ("error", "stream_error"),
        ("malformed", "malformed"),
        ("no_finish", "truncated"),
        ("done_early", "truncated"),
        ("cut@1", "cut"),
        ("cut@60", "cut"),
        ("keepalive_forever,every_s=0.05", "idle_timeout"),
    ],
)
async def test_every_fault_in_mid_sentence_ends_in_a_right_answer(fault: str, label: str) -> None:
    out = io.StringIO()
    assert await shown(fault, out), out.getvalue()
    assert len(re.findall(rf"⟨{label}( \d+ ms)?⟩", words(out.getvalue()))) == 2


@pytest.mark.parametrize("fault", ["status=503", "unauthorized", "refuse", "silent", "html"])
async def test_a_fault_before_output_shows_no_seam(fault: str) -> None:
    out = io.StringIO()
    assert await shown(fault, out), out.getvalue()
    assert "The client noticed nothing." in words(out.getvalue())
    assert not re.search(r"⟨(?!fault)", out.getvalue())


async def test_what_does_not_fail_needs_no_failover() -> None:
    out = io.StringIO()
    assert await shown("cut@9999", out)
    assert out.getvalue().count("primary/model-a was asked first and completed its answer.") == 2


async def test_an_answer_that_does_not_come_is_not_right() -> None:
    out = io.StringIO()
    assert not await shown("status=400", out)
    assert "The stream ended in an error: The simulated provider failed" in words(out.getvalue())
    assert "The answer equals the uncut one: NO." in out.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        seeded_text(3, 700, kinds=("dialogue", "list", "code")),
        seeded_text(5, 700, kinds=("code", "german")),
        seeded_text(4, 300, kinds=("japanese",)),
        "Short.",
        "no sentence ends here at all",
        "One.\n\n\nTwo, with \x1b[31m, \u202e and \t.",
    ],
)
async def test_any_text_will_do(text: str) -> None:
    out = io.StringIO()
    assert await shown("cut", out, text), out.getvalue()
    assert "\x1b" not in out.getvalue()
    assert "\u202e" not in out.getvalue()


async def test_paced_it_shows_the_fallbacks_own_time() -> None:
    out = io.StringIO()
    tempo = Tempo(tokens_per_s=2_000.0, fallback_first_token_s=0.05, patience_s=5.0)
    assert await shown("cut", out, tempo=tempo)
    pauses = [int(found) for found in re.findall(r"⟨cut (\d+) ms⟩", words(out.getvalue()))]
    assert len(pauses) == 2
    assert min(pauses) >= 50
    assert out.getvalue().count("first token after 50 ms") == 1


async def shown(fault: str, out: TextIO, text: str | None = None, tempo: Tempo = FAST) -> bool:
    """Both acts, in this process; nothing of them stays."""
    spec = parse_fault(fault)
    acts = []
    for story in (agreeing(text, spec.at), differing(text, spec.at)):
        placed = spec if spec.at is not None else replace(spec, at=story.cut_tokens)
        acts.append(Act(title="act", story=story, fault=placed))
    right = await perform(acts, tempo, Log(out))
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return right


# --- the command ----------------------------------------------------------------------------------


def test_a_wrong_answer_is_exit_code_1(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--fast", "--fault", "status=400"]) == 1
    assert "\x1b" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "holds no text"),
        (b" \n ", "holds no text"),
        (b"x" * (MAX_TEXT_BYTES + 1), "take a shorter text"),
        (b"\xff\xfe", "decode"),
        (None, "No such file"),
    ],
)
def test_a_text_that_cannot_be_used_is_exit_code_2(
    content: bytes | None, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "text"
    if content is not None:
        path.write_bytes(content)
    assert main(["demo", "--fast", "--text", str(path)]) == 2
    told_ = capsys.readouterr()
    assert complaint in told_.err
    assert not told_.out


def test_a_text_of_ones_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "text"
    path.write_text("\ufeffThe first sentence is here.\r\nThe second one is somewhat longer.\r\n")
    assert main(["demo", "--fast", "--text", str(path)]) == 0
    shown_ = words(capfd.readouterr().out)
    assert "The second one is somewhat longer." in re.sub(r"[{}]|⟨.*?⟩", "", shown_)


@pytest.mark.parametrize("fault", ["cut_byte@3", "nonsense", "cut@x", "cut,at_s=3"])
def test_a_fault_that_is_none_is_refused(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["demo", "--fault", fault])
    assert refused.value.code == 2
    assert "--fault" in capsys.readouterr().err


def test_the_demos_own_logs_come_after_the_picture(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--fast", "--seed", "1"]) == 0
    assert not capfd.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_gives_the_terminal_back(number: signal.Signals, code: int) -> None:
    ours, theirs = pty.openpty()
    env = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "COLUMNS"}}
    with (
        open(ours, "rb", buffering=0, closefd=True) as terminal,  # noqa: PTH123 - a descriptor
        subprocess.Popen(
            DEMO,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.PIPE,
            env={**env, "TERM": "xterm"},
            preexec_fn=heed_interrupts,  # noqa: PLW1509 - no thread of ours runs here
        ) as process,
    ):
        os.close(theirs)
        seen = b""
        while b"pending" not in seen.partition(b"Act 1")[2]:
            seen += terminal.read(READ_BYTES)
        process.send_signal(number)
        seen += b"".join(until_closed(terminal))
        _, complaint = process.communicate(timeout=30)
    assert process.returncode == code
    assert not complaint
    assert seen.count(b"\x1b[?25l") == 1
    assert seen.endswith(b"\r\n\x1b[0m\x1b[?25h")


def heed_interrupts() -> None:
    """Whoever runs the tests in the background has its children ignore an interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def until_closed(terminal: io.FileIO) -> Iterator[bytes]:
    while True:
        try:
            data = terminal.read(READ_BYTES)
        except OSError:  # Linux says so when the last one at the other side is gone
            return
        if not data:
            return
        yield data


def test_a_reader_that_leaves_is_no_disaster() -> None:
    with subprocess.Popen(
        [*DEMO, "--fast"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


async def test_an_output_without_unicode_gets_ascii() -> None:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="ascii") as out:
        assert await shown("cut", out)
        assert re.search(r"only\s+5\.}\s*<cut \d+ ms>", raw.getvalue().decode("ascii"))


# --- the stories ----------------------------------------------------------------------------------


def test_the_own_story_is_cut_inside_a_number() -> None:
    story = agreeing()
    assert "".join(tokenize(ANSWER)[: story.cut_tokens]).endswith("lost only 5.")
    assert story.text == story.other_text == ANSWER


def test_the_own_story_differs_in_one_sentence() -> None:
    story = differing()
    cut = len("".join(tokenize(ANSWER)[: story.cut_tokens]))
    start, end = next(span for span in sentences(ANSWER) if span[0] < cut < span[1])
    assert story.other_text[:start] == ANSWER[:start]
    assert story.other_text.endswith(ANSWER[end:])
    assert ANSWER[start:end] not in story.other_text


@given(
    st.integers(0, 50).map(lambda seed: seeded_text(seed, 400))
    | st.text("ab .!\n\u3042\u3002", min_size=1).filter(str.strip)
)
@settings(deadline=None, max_examples=30)
def test_every_text_is_cut_in_it_and_reworded_where_it_is_cut(text: str) -> None:
    assert "".join(text[start:end] for start, end in sentences(text)) == text
    story = differing(text)
    tokens = tokenize(text)
    assert 0 < story.cut_tokens <= len(tokens)
    cut = len("".join(tokens[: story.cut_tokens]))
    committed = max(
        (end for _, end in sentences(text) if end <= cut and end < len(text)), default=0
    )
    assert story.other_text.startswith(text[:committed])
    assert story.other_text != text


# --- what a play shows ----------------------------------------------------------------------------

CUT = Fault(kind=FaultKind.CUT)


def attempt(chars: int, fault: Fault | None) -> AttemptEnded:
    report = AttemptReport(
        number=1,
        target="a",
        model="m",
        style="",
        started_ms=0.0,
        first_output_ms=None,
        last_output_ms=None,
        duration_ms=0.0,
        output_chars=chars,
        chunks=0,
        reasoning_chars=0,
        fault=fault,
        usage={},
        usage_estimated=True,
    )
    return AttemptEnded(stream_id="s", report=report)


def joined(fragment: int, superseded: int = 0) -> Joined:
    report = FailoverReport(
        from_target="a",
        to_target="b",
        fault=CUT,
        style="continue_final",
        committed_chars=0,
        join="",
        pause_ms=7.4,
    )
    return Joined(
        stream_id="s",
        report=report,
        fragment_chars=fragment,
        superseded_chars=superseded,
        dropped=(),
    )


def committed(play: Play, delta: str) -> Committed:
    chars = len(play.committed_text) + len(delta)
    return Committed(stream_id="s", committed_chars=chars, delta=delta)


def ended(outcome: str, superseded: tuple[tuple[int, int], ...] = ()) -> StreamEnded:
    return StreamEnded(
        report=StreamReport(
            stream_id="s",
            route="r",
            outcome=outcome,
            started_unix_s=0.0,
            duration_ms=0.0,
            first_output_ms=None,
            attempts=(),
            failovers=(),
            superseded=superseded,
            delivered_chars=0,
            committed_chars=0,
            boundaries=0,
            usage={},
            finish="stop",
        )
    )


def seen(play: Play) -> list[tuple[str, Ink]]:
    return [(piece.text, piece.ink) for piece in play.pieces() if piece.text]


def test_a_play_that_agrees() -> None:
    now = [0.0]
    play = Play(lambda: now[0])
    play.text("One. Two a")
    play.observe(committed(play, "One."))
    assert seen(play) == [("One.", Ink.COMMITTED), (" Two a", Ink.PENDING)]
    assert play.pending_chars == 6
    now[0] = 0.25
    play.observe(attempt(10, CUT))
    assert seen(play)[-1] == ("cut 250 ms", Ink.WAITING)
    play.observe(joined(fragment=6))
    play.text("nd. Three.")
    assert seen(play)[1:] == [
        (" Two a", Ink.PENDING),
        ("cut 7 ms", Ink.SEAM),
        ("nd. Three.", Ink.PENDING),
    ]
    play.observe(committed(play, " Two and."))
    assert seen(play)[1:] == [
        (" Two a", Ink.HELD),
        ("cut 7 ms", Ink.SEAM),
        ("nd.", Ink.COMMITTED),
        (" Three.", Ink.PENDING),
    ]
    play.observe(ended("completed"))
    assert seen(play)[-1] == (" Three.", Ink.COMMITTED)


def test_a_play_that_differs() -> None:
    play = Play()
    play.text("One. Two a")
    play.observe(committed(play, "One."))
    play.observe(attempt(10, CUT))
    play.observe(joined(fragment=6, superseded=7))
    play.text("\n\nDeux.")
    assert seen(play) == [
        ("One.", Ink.COMMITTED),
        (" ", Ink.PENDING),
        ("Two a", Ink.SUPERSEDED),
        ("cut 7 ms", Ink.SEAM),
        ("\n\n", Ink.SUPERSEDED),
        ("Deux.", Ink.PENDING),
    ]
    play.observe(committed(play, " Deux."))
    assert (play.committed_end, play.pending_chars) == (17, 0)
    play.observe(ended("completed", ((5, 12),)))
    assert [text for text, ink in seen(play) if ink is Ink.SUPERSEDED] == ["Two a", "\n\n"]


def test_a_play_whose_observer_is_ahead_of_its_client() -> None:
    play = Play()
    play.observe(committed(play, "One. Two."))
    play.observe(attempt(9, CUT))
    play.observe(joined(fragment=0))
    assert seen(play) == []
    play.text("One.")
    assert seen(play) == [("One.", Ink.COMMITTED)]
    play.text(" Two. X")
    assert seen(play)[1:] == [("cut 7 ms", Ink.SEAM), (" X", Ink.PENDING)]


def test_a_fault_before_output_leaves_no_trace() -> None:
    play = Play()
    play.observe(AttemptStarted(stream_id="s", number=1, target="a", style=""))
    play.observe(attempt(0, CUT))
    assert play.fault is CUT
    play.text("One")
    assert seen(play) == [("One", Ink.PENDING)]


def test_a_broken_play_keeps_its_loose_end() -> None:
    play = Play()
    play.text("One. Two")
    play.observe(committed(play, "One."))
    play.observe(attempt(8, CUT))
    play.observe(ended("stream_interrupted"))
    assert seen(play)[1:] == [(" Two", Ink.PENDING), ("cut", Ink.SEAM)]


# --- rows and screens -----------------------------------------------------------------------------

SOME_TEXT = st.text("ab é\n\u3042\u0301\t", max_size=60)
PIECES = st.lists(st.builds(Piece, SOME_TEXT, st.sampled_from(Ink)), max_size=8)


@given(PIECES, st.integers(2, 20))
def test_rows_fit_and_lose_nothing_but_white_space(pieces: list[Piece], width: int) -> None:
    line = cells(pieces, {})
    rows = wrap(line, width)
    assert [row.start for row in rows] == sorted({row.start for row in rows})
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        last = following.start if following else len(line)
        assert sum(cell.width for cell in line[row.start : last] if cell.text != " ") <= width
    said = "".join(run.text for row in rows for run in row.runs)
    meant = "".join(cell.text for cell in line)
    assert "".join(said.split()) == "".join(meant.split())


def test_a_row_ends_between_words_and_beside_a_label() -> None:
    pieces = [Piece("one two", Ink.HELD), Piece("cut 12 ms", Ink.SEAM), Piece("three", Ink.PENDING)]
    rows = wrap(cells(pieces, {Ink.HELD: ("{", "}")}), 10)
    assert ["".join(run.text for run in row.runs) for row in rows] == [
        "{one two}",
        "cut 12 ms",
        "three",
    ]
    assert [row.final for row in rows] == [True, True, False]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["text", "commit", "agree", "differ", "frame"]),
        st.text("ab  c\n\u3042", min_size=1, max_size=30),
    ),
    min_size=1,
    max_size=25,
)


def played(steps: list[tuple[str, str]]) -> Iterator[Play]:
    """A play after each of its steps, told what the router's own bookkeeping says."""
    play, machine = Play(lambda: 0.0), CommitMachine()
    for step, text in steps:
        fragment = machine.fragment
        if step == "text":
            machine.text(text)
            play.text(text)
        elif step == "commit" and fragment:
            play.observe(committed(play, machine.commit(min(len(text), len(fragment)))))
        elif step in {"agree", "differ"} and machine.delivered_chars:
            kept = len(fragment) - len(fragment.lstrip())
            differs = step == "differ" and kept < len(fragment)
            machine.fault()
            play.observe(attempt(1, CUT))
            yield play
            if differs:
                machine.supersede(kept, "\n\n")
            replaced = len(fragment) - kept + 2 if differs else 0
            play.observe(joined(fragment=len(fragment), superseded=replaced))
            machine.text(text)
            play.text("\n\n" * differs + text)
        yield play
    play.observe(ended("completed", tuple(machine.superseded)))
    yield play


@given(STEPS, st.integers(26, 50))
@settings(deadline=None, max_examples=60)
def test_a_log_that_grew_is_the_log_of_the_end(steps: list[tuple[str, str]], columns: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        grown, whole = io.StringIO(), io.StringIO()
        log, at_once = Log(grown), Log(whole)
        log.begin()
        at_once.begin()
        for play in played(steps):
            log.frame(play.pieces(), "status")
        log.end(play.pieces())
        at_once.end(play.pieces())
    assert grown.getvalue() == whole.getvalue()


@given(STEPS, st.integers(30, 50), st.integers(8, 30))
@settings(deadline=None)
def test_a_terminal_ends_with_the_whole_answer(
    steps: list[tuple[str, str]], columns: int, lines: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("LINES", str(lines))
        out = io.StringIO()
        with Terminal(out) as screen:
            screen.line("before")
            screen.begin()
            for play in played(steps):
                screen.frame(play.pieces(), "status " * 20)
            screen.end(play.pieces())
            screen.line("after")
            marks = {Ink.SEAM: (" ", " ")}
            rows = wrap(cells(play.pieces(), marks), screen.columns)
    wanted = [MARGIN + "".join(run.text for run in row.runs) for row in rows]
    assert Paper(columns, lines).draw(out.getvalue()) == [
        line.rstrip() for line in [f"{MARGIN}before", *wanted, f"{MARGIN}after"]
    ]


class Paper:
    """As much of a terminal as the demo uses; what it may not do fails the test.

    Args:
        columns: width.
        lines: height: the cursor does not go up further than that.
    """

    def __init__(self, columns: int, lines: int) -> None:
        self._columns = columns
        self._lines = lines
        self._rows = [""]
        self._row = self._column = 0

    def draw(self, text: str) -> list[str]:
        """Draw everything; give the rows, without those at the end that are empty."""
        for token in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|\x1b|.", text, re.DOTALL):
            self._take(token)
        while self._rows and not self._rows[-1].strip():
            self._rows.pop()
        return [row.rstrip() for row in self._rows]

    def _take(self, token: str) -> None:
        if token == "\r":
            self._column = 0
        elif token == "\n":
            self._row += 1
            if self._row == len(self._rows):
                self._rows.append("")
        elif token.startswith("\x1b"):
            self._escape(token[2:-1], token[-1])
        else:
            row = self._rows[self._row]
            self._rows[self._row] = row[: self._column] + token + row[self._column + 1 :]
            self._column += 1
            wide = sum(char >= "\u3000" for char in self._rows[self._row][: self._column])
            assert self._column + wide < self._columns, "the last column is used"

    def _escape(self, argument: str, command: str) -> None:
        if command == "A":
            self._row -= int(argument)
            assert self._row > len(self._rows) - 1 - self._lines, "above the screen"
        elif command in "KJ":
            self._rows[self._row] = self._rows[self._row][: self._column]
            if command == "J":
                del self._rows[self._row + 1 :]
        else:
            assert command in "mhl"


def test_a_terminal_that_changed_its_width_goes_on_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = io.StringIO()
    screen = Terminal(out)
    screen.begin()
    screen.frame([Piece("one two three", Ink.PENDING)], "status")
    drawn = out.tell()
    monkeypatch.setenv("COLUMNS", "30")
    screen.frame([Piece("one two three four", Ink.PENDING)], "status")
    again = out.getvalue()[drawn:]
    assert again.startswith("\r\n")
    assert "\x1b[1A" not in again
    assert "one two three four" in again


def test_what_has_not_changed_is_not_drawn_again() -> None:
    out = io.StringIO()
    screen = Terminal(out)
    screen.begin()
    pieces = [Piece("one two", Ink.COMMITTED), Piece(" three", Ink.PENDING)]
    screen.frame(pieces, "status")
    drawn = out.tell()
    screen.frame(pieces, "status")
    assert out.tell() == drawn


# --- the verdict ----------------------------------------------------------------------------------


def right_answer() -> Heard:
    return Heard(
        status=200,
        target="primary/model-a",
        text=ANSWER,
        ids={("id", "model")},
        finishes=["stop"],
        done=1,
    )


def test_a_right_answer_passes_every_check() -> None:
    assert all(check.holds for check in checks(right_answer(), agreeing(), ANSWER[:40]))


@pytest.mark.parametrize(
    ("wrong", "which"),
    [
        ({"text": ANSWER + "."}, 0),
        ({"text": ANSWER.replace("5.1", "5.5.1")}, 0),
        ({"metadata": [{"superseded": [[0, 1]]}]}, 0),
        ({"finishes": []}, 1),
        ({"finishes": ["stop", "stop"]}, 1),
        ({"done": 0}, 1),
        ({"done": 2}, 1),
        ({"error": "broken"}, 1),
        ({"ids": {("id", "model"), ("other", "model")}}, 2),
        ({"metadata": [{}, {}]}, 2),
        ({"stray_metadata": 1}, 2),
    ],
)
def test_each_wrong_is_found(wrong: dict[str, object], which: int) -> None:
    heard = right_answer()
    for name, value in wrong.items():
        setattr(heard, name, value)
    assert not checks(heard, agreeing(), "")[which].holds


def test_a_record_that_is_no_prefix_is_found() -> None:
    assert not checks(right_answer(), agreeing(), "A navigator needs three")[3].holds


def test_the_metadata_is_printed_whole_and_within_the_columns() -> None:
    facts = {
        "stream_id": "x" * 24,
        "attempts": [{"target": "a: b", "usage": {"prompt_tokens": 1}, "fault": None}] * 2,
        "failovers": [],
        "superseded": [[1, 2], [3, 4]],
    }
    lines = list(pretty(facts, 30))
    assert max(len(line) for line in lines) <= 44  # an id is longer than so few columns
    assert json.loads("{" + " ".join(line.strip() for line in lines) + "}") == {"router": facts}


def test_two_failovers_are_told_one_after_the_other() -> None:
    heard = right_answer()
    heard.metadata = [
        {
            "attempts": [{"target": name, "output_chars": 9} for name in "abc"],
            "failovers": [
                {"from": a, "to": b, "fault": "cut", "style": "instruct", "committed_chars": chars}
                for a, b, chars in (("a", "b", 0), ("b", "c", 12))
            ],
            "superseded": [[3, 9]],
        }
    ]
    assert list(told(heard)) == [
        "a failed (cut); b got the original request, for nothing was committed yet.",
        "b failed (cut); c got the 12 committed characters as a prefix (instruct).",
        "6 delivered characters are superseded: [3, 9).",
    ]
