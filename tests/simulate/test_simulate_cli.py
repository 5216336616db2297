from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from router.simulate import cli


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    return parser.parse_args(words)


def test_options_become_a_provider(tmp_path: Path) -> None:
    file = tmp_path / "answer.txt"
    file.write_text("Zähne. Ende.", "utf-8")
    provider = cli.build(
        parsed(
            *("--text", str(file), "--tokens-per-s", "50", "--first-token-ms", "200"),
            *("--prefix", "refuse", "--instruct", "strip", "--refusal", "gemini"),
            *("--behave", "crlf,tokens_per_chunk=2", "--write-bytes", "3", "--port", "0"),
            *("--reasoning", "Hm.", "--model", "m-1", "--api-key", "sim-key"),
        )
    )
    manner = provider.manner
    assert manner.script.text == "Zähne. Ende."
    assert manner.script.reasoning == "Hm."
    assert (manner.pace.tokens_per_s, manner.pace.first_token_delay_s) == (50.0, 0.2)
    assert (manner.conduct.prefix, manner.conduct.instruct) == ("refuse", "strip")
    assert (manner.dialect.line_end, manner.dialect.tokens_per_chunk) == ("\r\n", 2)
    assert (manner.write_bytes, manner.model, provider.port) == (3, "m-1", 0)
    assert manner.api_key == "sim-key"


def test_a_made_up_answer_has_the_length_and_kinds_asked_for() -> None:
    provider = cli.build(parsed("--seed", "4", "--chars", "300", "--kinds", "japanese"))
    assert 300 <= len(provider.manner.script.text) < 700
    assert "。" in provider.manner.script.text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fault", "explode"], "Unknown fault 'explode'"),
        (["--script", "cut@1", "cut@x"], "cut@x: behind the @ stands a whole number."),
        (["--fault", "stall@3,for_s=x"], "for_s=x: behind the = stands a number."),
        (["--fault", "cut@3,requests=x"], "requests=x: behind the = stands a number, or a range"),
        (["--fault", "prefix=nope"], "prefix=nope: behind the = stands one of refuse, continue,"),
        (["--fault", "cut_byte@7,form=foo"], "form='foo': cut_byte has the forms fin, rst, end"),
        (["--fault", "cut@7,form=rst"], "form='rst': cut has only one form."),
        (["--chars", "-5"], "-5 is below 1"),
        (["--chars", "many"], "'many' is no number"),
        (["--first-token-ms", "nan"], "nan is not within 0 and inf"),
        (["--write-bytes", "0"], "0 is below 1"),
        (["--port", "-1"], "-1 is below 0"),
        (["--port", "65536"], "65536 is not within 0 and 65535"),
        (["--behave", "loud"], "Unknown shape 'loud'"),
        (["--prefix", "sing"], "invalid choice: 'sing'"),
    ],
)
def test_nonsense_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        parsed(*words)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--text", "/no/such/file"], ["--kinds", "verse"]])
def test_what_cannot_start_says_why(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(parsed(*words)) == 2
    assert capsys.readouterr().err.startswith("router simulate: ")


def test_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.run(parsed("--port", str(port))) == 2
    told = capsys.readouterr().err
    assert f"the port {port} of 127.0.0.1 is in use" in told
    assert "--port" in told


RUN = """
import argparse, sys
from router.simulate import cli
parser = argparse.ArgumentParser()
cli.add_arguments(parser)
sys.exit(cli.run(parser.parse_args()))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_interrupted(number: signal.Signals) -> None:
    words = ["--port", "0", "--chars", "50", "--script", "-", "status=503"]
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", RUN, *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = line.split()[4]
        body = {"messages": [{"role": "user", "content": "x"}]}
        with httpx.Client(base_url=url) as client:
            assert client.post("/chat/completions", json=body).status_code == 200
            assert client.post("/chat/completions", json=body).status_code == 503
            contents = {"contents": [{"parts": [{"text": "x"}]}]}
            assert client.post("/models/sim:generateContent", json=contents).status_code == 200
            message = {"model": "sim", "max_tokens": 9, **body}
            version = {"anthropic-version": "2023-06-01"}
            assert client.post("/messages", json=message, headers=version).status_code == 200
            process.send_signal(number)
            _, errors = process.communicate(timeout=10)
        assert (process.returncode, errors) == (0, "")
