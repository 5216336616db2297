"""The command line: exit codes, what is printed where, and what is imported when."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from router import __version__
from router.cli import MAX_WORKERS, main
from router.config import Config, json_schema
from router.errors import ConfigError

FIXTURES = Path(__file__).parent / "fixtures" / "config"
DESIGN = FIXTURES / "good" / "design.yaml"
SMALLEST = FIXTURES / "good" / "smallest.yaml"
BROKEN = FIXTURES / "bad" / "many-at-once.yaml"
ENV = {"ROUTER_API_KEY": "router-secret", "OPENAI_API_KEY": "openai-secret"}


def fake(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> None:  # noqa: ANN401
    """Put a module in the place of one that starts servers."""
    module = ModuleType(name)
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, name, module)


# --- check and schema -----------------------------------------------------------------------------


def test_check_says_what_a_good_file_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(DESIGN)], ENV) == 0
    out, err = capsys.readouterr()
    limits = "first output 15 s, idle 5 s"
    claude = "claude/claude-sonnet-4-5"
    assert out.splitlines() == [
        "server   127.0.0.1:8080, 1 API key(s)",
        "record   in Redis",
        "route    chat",
        f"  1. openai/gpt-5.2 (openai; continues by instruct, default; {limits})",
        f"  2. {claude} (anthropic; continues by assistant_tail, default; {limits})",
        f"  3. gpu-1/qwen3-32b (vllm; continues by continue_final, configured; {limits})",
        "ok: 3 provider(s), 1 route(s)",
    ]
    assert err == ""


def test_check_says_that_a_record_in_memory_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(SMALLEST)], {}) == 0
    out = capsys.readouterr().out
    assert "no API keys, loopback only" in out
    assert "in memory: lost with the process" in out


def test_check_tells_every_problem_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(BROKEN)], ENV) == 1
    out, err = capsys.readouterr()
    expected = BROKEN.with_suffix(".expected").read_text().splitlines()
    told = [f"{BROKEN}:{line}" for line in expected]
    assert err.splitlines() == told
    assert out == ""


def test_check_of_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "absent.yaml"], {}) == 1
    err = capsys.readouterr().err
    assert err.startswith("absent.yaml: The file cannot be read: No such file or directory.")


def test_schema_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"], {}) == 0
    assert capsys.readouterr().out == json_schema()


# --- serve ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], {"host": "127.0.0.1", "port": 8080, "workers": 1, "fd": None}),
        (
            ["--host", "0.0.0.0", "--port", "0", "--workers", "3"],
            {"host": "0.0.0.0", "port": 0, "workers": 3, "fd": None},
        ),
        (["--fd", "5"], {"host": "127.0.0.1", "port": 8080, "workers": 1, "fd": 5}),
    ],
)
def test_serve_hands_over_what_the_command_line_and_the_file_say(
    monkeypatch: pytest.MonkeyPatch, options: list[str], told: dict[str, object]
) -> None:
    seen: list[tuple[Config, dict[str, object]]] = []

    def serve(config: Config, **rest: object) -> int:
        seen.append((config, rest))
        return 7

    fake(monkeypatch, "router.build", serve=serve)
    assert main(["serve", str(DESIGN), *options], ENV) == 7
    ((config, rest),) = seen
    assert rest == {"path": DESIGN, **told}
    assert (config.server.host, config.server.port) == (told["host"], told["port"])


def test_serve_refuses_a_broken_file_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, "router.build", serve=lambda *_, **__: pytest.fail("started"))
    assert main(["serve", str(BROKEN)], ENV) == 1
    assert "many-at-once.yaml:2:" in capsys.readouterr().err


def test_serve_refuses_to_open_a_router_without_keys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, "router.build", serve=lambda *_, **__: pytest.fail("started"))
    assert main(["serve", str(SMALLEST), "--host", "0.0.0.0"], {}) == 1
    assert "`--host` lets other machines in" in capsys.readouterr().err


def test_an_error_while_building_is_told_in_the_same_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def serve(*_: object, **__: object) -> int:
        raise ConfigError("It is wrong.", file="f.yaml", line=3, remedy="Mend it.")

    fake(monkeypatch, "router.build", serve=serve)
    assert main(["serve", str(SMALLEST)], {}) == 1
    assert capsys.readouterr().err == "f.yaml:3: It is wrong. Mend it.\n"


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    fake(monkeypatch, "router.build", serve=serve)
    assert main(["serve", str(SMALLEST)], {}) == 130


@pytest.mark.parametrize(
    "argv",
    [
        ["sever"],
        ["serve"],
        ["check"],
        ["serve", "f.yaml", "--port", "70000"],
        ["serve", "f.yaml", "--port", "-1"],
        ["serve", "f.yaml", "--port", "٣"],
        ["serve", "f.yaml", "--port", "9" * 5000],
        ["serve", "f.yaml", "--workers", "0"],
        ["serve", "f.yaml", "--workers", str(MAX_WORKERS + 1)],
        ["check", "f.yaml", "--host", "::1"],
        ["schema", "more"],
        ["serve", "f.yaml", "--fd", "-1"],
    ],
)
def test_a_wrong_command_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv, {})
    assert caught.value.code == 2
    assert "usage: router" in capsys.readouterr().err


# --- commands that live elsewhere -----------------------------------------------------------------


def test_a_command_that_lives_elsewhere_brings_its_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--cut-after", type=int)

    fake(
        monkeypatch,
        "router.simulate.cli",
        add_arguments=add_arguments,
        run=lambda args: int(args.cut_after),
    )
    assert main(["simulate", "--cut-after", "9"], {}) == 9


def test_a_command_without_arguments_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, "router.demo", run=lambda _: 5)
    assert main(["demo"], {}) == 5


def test_a_part_that_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, "router.demo")
    assert main(["demo"], {}) == 2
    assert "`router.demo.run`" in capsys.readouterr().err


def test_a_missing_dependency_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)  # what an import of it then raises
    module = ModuleType("router.build")

    def serve(*_: object, **__: object) -> int:
        raise ModuleNotFoundError("no uvicorn", name="uvicorn")

    vars(module)["serve"] = serve
    monkeypatch.setitem(sys.modules, "router.build", module)
    with pytest.raises(ModuleNotFoundError):
        main(["serve", str(SMALLEST)], {})


# --- the installed program ------------------------------------------------------------------------


def test_the_version_comes_from_the_module_as_from_the_command() -> None:
    command = Path(sys.executable).with_name("router")
    for program in ([sys.executable, "-m", "router"], [str(command)]):
        done = subprocess.run(
            [*program, "--version"], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout == f"router {__version__}\n"


def test_checking_a_file_loads_no_server() -> None:
    program = (
        "import sys; from router.cli import main; "
        f"code = main(['check', {str(SMALLEST)!r}], {{}}); "
        "loaded = {'uvicorn', 'fastapi', 'aiohttp', 'redis', 'pysbd'} & set(sys.modules); "
        "sys.exit(f'loaded {loaded}' if loaded else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_bare_command_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    for name in ("serve", "check", "demo", "drill", "simulate", "schema"):
        assert f"    {name} " in said.err
