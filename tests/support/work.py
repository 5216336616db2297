"""Work for a coding agent: what the models ask for, the tools that do it, and a count of what ran.

The models know the work by its state: a call whose tool has run is not asked for again. So a
session can be broken off anywhere, and what ran twice shows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from router.core.events import ToolCall
from router.simulate import Script, SimulatedProvider, tokenize

Call: TypeAlias = tuple[str, Mapping[str, Any]]
"""Name and input of a tool call."""

SECRET: Final = "SECRET-THOUGHT"
"""In every thought, so that one which reaches another vendor shows."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a model does at one point of the work.

    Args:
        thought: before it speaks.
        text: that it says.
        calls: that it makes; none ends the work.
    """

    thought: str
    text: str
    calls: tuple[Call, ...] = ()

    @property
    def size(self) -> tuple[int, int, tuple[int, ...]]:
        """How many pieces a simulated model cuts it into: thought, text, each call."""
        calls = (1 + len(tokenize(_arguments(given))) for _, given in self.calls)
        return len(tokenize(self.thought)), len(tokenize(self.text)), tuple(calls)


WORK: Final = (
    Step(
        thought=f"{SECRET} one. The test fails, so the parser is where I look first.",
        text="I look at the parser and at its test. ",
        calls=(
            ("Read", {"path": "src/parser.py", "limit": 200}),
            ("Read", {"path": "tests/test_parser.py"}),
            ("Grep", {"pattern": 'def parse\\("', "glob": "**/*.py"}),
        ),
    ),
    Step(
        thought=f"{SECRET} two. A comma is missing in line 36.",
        text="The comma in line 36 is missing. I add it.",
        calls=(("Edit", {"path": "src/parser.py", "old": "{a}", "new": '{a}", "😀'}),),
    ),
    Step(
        thought=f"{SECRET} three. Run the tests, and see what else has changed.",
        text="",
        calls=(
            ("Bash", {"command": "pytest -q 2>&1 | tail -3", "timeout_ms": 120_000}),
            ("Bash", {"command": "git diff --stat"}),
        ),
    ),
    Step(
        thought=f"{SECRET} four. All is green.",
        text="The parser read lines without a comma wrongly. It is mended. All 36 tests pass now.",
    ),
)
FINAL: Final = WORK[-1].text

_FIELDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("path", "pattern", "glob", "old", "new", "command"), "string"),
    **dict.fromkeys(("limit", "timeout_ms"), "integer"),
}
TOOLS: Final[Sequence[Mapping[str, Any]]] = [
    {
        "name": name,
        "description": f"{name}. " + "What it is good for, and when to leave it alone. " * 5,
        "input_schema": {
            "type": "object",
            "properties": {field: {"type": kind} for field, kind in _FIELDS.items()},
            "additionalProperties": False,
        },
        **({"cache_control": {"type": "ephemeral"}} if name.endswith("_15") else {}),
    }
    for name in ("Read", "Grep", "Edit", "Bash", *(f"mcp__house__tool_{n}" for n in range(16)))
]


def _arguments(given: object) -> str:
    return json.dumps(given, ensure_ascii=False, indent=1)


def counted(name: str, given: object) -> str:
    """What a run of a tool is counted under."""
    return f"{name} {json.dumps(given, sort_keys=True)}"


DUE: Final = frozenset(counted(*call) for step in WORK for call in step.calls)
"""All runs that the work takes."""


@dataclass
class Workshop:
    """Where the tools run, and the models that ask for it.

    Args:
        providers: each with what the ids of its calls begin with.
        ran: how often each tool ran.
    """

    providers: Sequence[tuple[SimulatedProvider, str]]
    ran: Counter[str] = field(default_factory=Counter)
    _turn: int = 0

    def next_turn(self) -> Step:
        """Let the models see how far the work is.

        Returns:
            What each of them will do.
        """
        step = next((one for one in WORK if self._left(one)), WORK[-1])
        step = replace(step, calls=self._left(step))
        self._turn += 1
        for provider, mark in self.providers:
            calls = (
                ToolCall(at, f"{mark}{self._turn}_{at}", name, _arguments(given))
                for at, (name, given) in enumerate(step.calls)
            )
            provider.manner.script = Script(
                text=step.text, reasoning=step.thought, tool_calls=tuple(calls)
            )
        return step

    def _left(self, step: Step) -> tuple[Call, ...]:
        return tuple(call for call in step.calls if counted(*call) not in self.ran)

    def run(self, name: str, given: object) -> dict[str, Any]:
        """A tool.

        Returns:
            Fields of its result.
        """
        call = counted(name, given)
        assert call in DUE, f"no model asked for {call}"
        self.ran[call] += 1
        result: dict[str, Any] = {"content": [{"type": "text", "text": f"Result of {call}"}]}
        return result | ({"is_error": True} if "pytest" in call else {})

    def check(self) -> None:
        """All of the work was done, and nothing of it twice."""
        assert self.ran == dict.fromkeys(DUE, 1)
