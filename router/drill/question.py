"""What is asked of the providers: one small request, and what asking it will cost."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from router.core.faults import Fault, Verdict
from router.core.request import ChatRequest
from router.wire.openai import parse_chat_request

DEFAULT_PROMPT: Final = (
    "Explain to a curious child how a sailing ship can travel against the wind. "
    "Write about six paragraphs of plain prose, without headings or lists."
)
"""Long enough to be cut after a few hundred tokens, prose enough to have sentence ends."""

DEFAULT_AFTER_TOKENS: Final = 200
TOKENS_AFTER_CUT: Final = 200
"""How much is asked for beyond the cut: enough to see how the fallback goes on, and no more."""
_CHARS_PER_TOKEN: Final = 4

_NEWER_BUDGET: Final = frozenset({"openai", "azure-openai"})
"""Families whose newer models refuse `max_tokens`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The drill's request.

    Args:
        prompt: the user message.
        max_tokens: bound on the answer.
        budget_field: name of the field that says so.
        temperature: send `temperature: 0`, so that answers can be compared.
    """

    prompt: str
    max_tokens: int
    budget_field: str = "max_tokens"
    temperature: bool = True

    def request(self, model: str) -> ChatRequest:
        """As a client would send it.

        Args:
            model: the public model name.
        """
        body: dict[str, object] = {
            "model": model,
            "messages": [{"role": "user", "content": self.prompt}],
            "stream": True,
            self.budget_field: self.max_tokens,
        }
        if self.temperature:
            body["temperature"] = 0
        return parse_chat_request(json.dumps(body).encode())

    def reworded(self, faults: Sequence[Fault | None]) -> Question | None:
        """The same without the field that a provider refused.

        Args:
            faults: of the attempts that were made.

        Returns:
            It, or None if no attempt failed over such a field, or it was left out already.
        """
        refused = [one for one in faults if one is not None and one.verdict is Verdict.REQUEST]
        for fault in refused:
            blamed = f"{fault.param} {fault.message}"
            if self.temperature and "temperature" in blamed:
                return replace(self, temperature=False)
            if self.budget_field == "max_tokens" and re.search(r"\bmax_tokens\b", blamed):
                return replace(self, budget_field="max_completion_tokens")
        return None


def make_question(prompt: str, after_tokens: int, families: Sequence[str]) -> Question:
    """The question for some targets.

    Args:
        prompt: the user message.
        after_tokens: where the answer will be cut.
        families: provider types of the targets that are asked.
    """
    newer = all(one in _NEWER_BUDGET for one in families)
    return Question(
        prompt=prompt,
        max_tokens=after_tokens + TOKENS_AFTER_CUT,
        budget_field="max_completion_tokens" if newer else "max_tokens",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a drill will cost, roughly: a tokenizer's guess, retries not counted.

    Args:
        calls: by target, in the order of their first call.
        tokens_in: prompt tokens of all calls.
        tokens_out: tokens of all answers, at most.
    """

    calls: dict[str, int]
    tokens_in: int
    tokens_out: int


def estimate(pairs: Sequence[tuple[str, str]], prompt: str, after_tokens: int) -> Cost:
    """Count the calls of a drill.

    Args:
        pairs: names of the target that is cut, and of the one that goes on.
        prompt: the user message.
        after_tokens: where the answer is cut.
    """
    calls: dict[str, int] = {}
    whole = after_tokens + TOKENS_AFTER_CUT
    out = 0
    for at, (cut, goes_on) in enumerate(pairs):
        control = cut not in {one for one, _ in pairs[:at]}
        calls[cut] = calls.get(cut, 0) + 2 + control
        calls[goes_on] = calls.get(goes_on, 0) + 2
        # Whole answers: uncut, and after the first accident; the second one's halves make another.
        out += whole * (2 + control)
    asked = -(-len(prompt) // _CHARS_PER_TOKEN)
    return Cost(
        calls=calls,
        tokens_in=sum(calls.values()) * asked + len(pairs) * after_tokens,
        tokens_out=out,
    )
