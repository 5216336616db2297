"""The locks that belong together, and the files that a stranger's first commands rest on."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def versions(lock: str) -> dict[str, str]:
    """Package to exact version, with its marker."""
    text = (ROOT / lock).read_text()
    return dict(re.findall(r"^([a-z0-9._-]+)==([^\\\n]+?) *\\$", text, re.MULTILINE))


def names(requirements: list[str]) -> set[str]:
    """The packages that requirements ask for, in the lock's spelling."""
    found = (re.match(r"[A-Za-z0-9._-]+", requirement) for requirement in requirements)
    return {re.sub(r"[._]", "-", match[0].lower()) for match in found if match}


@pytest.mark.parametrize("lock", ["requirements-runtime.lock", "requirements-build.lock"])
def test_the_image_runs_the_versions_that_were_tested(lock: str) -> None:
    part, whole = versions(lock), versions("requirements.lock")
    assert part
    assert {name: version.split(" ;")[0] for name, version in part.items()} == {
        name: whole[name].split(" ;")[0] for name in part
    }


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        ("requirements-runtime.lock", PROJECT["project"]["dependencies"]),
        ("requirements-build.lock", PROJECT["build-system"]["requires"]),
        (
            "requirements.lock",
            [entry for entry in PROJECT["dependency-groups"]["dev"] if isinstance(entry, str)],
        ),
    ],
)
def test_the_locks_hold_what_the_project_asks_for(lock: str, wanted: list[str]) -> None:
    assert names(wanted) <= set(versions(lock))


def test_clients_move_no_version_of_the_environment_that_they_are_put_into() -> None:
    clients, whole = versions("requirements-clients.lock"), versions("requirements.lock")
    assert names(PROJECT["dependency-groups"]["clients"]) <= set(clients)
    shared = clients.keys() & whole.keys()
    assert "openai" in shared
    for name in shared:
        assert clients[name].split(" ;")[0] == whole[name].split(" ;")[0]


def test_the_locks_name_no_index() -> None:
    for lock in ROOT.glob("requirements*.lock"):
        assert "index-url" not in lock.read_text()
    assert '"resolved"' not in (ROOT / "tests/clients/package-lock.json").read_text()


def test_make_alone_tells_its_targets() -> None:
    told = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for target in ("setup", "demo", "test", "lint", "bench", "lock"):
        assert re.search(rf"^  make {target} +\S", told, re.MULTILINE)


@pytest.mark.parametrize(
    "script", [".ci/run", "tools/make-venv", "tools/system-package", "tools/npm"]
)
def test_a_script_is_executable_and_parses(script: str) -> None:
    path = ROOT / script
    assert path.stat().st_mode & 0o111
    shell = "bash" if "bash" in path.read_text().partition("\n")[0] else "sh"
    subprocess.run([shell, "-n", str(path)], check=True)


def test_what_is_there_is_not_installed_again() -> None:
    done = subprocess.run(
        [ROOT / "tools/system-package", "a shell", "command -v sh", "never"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_what_cannot_be_installed_is_said() -> None:
    done = subprocess.run(
        [ROOT / "tools/system-package", "a thing", "false"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 1
    assert "a thing is missing" in done.stderr
