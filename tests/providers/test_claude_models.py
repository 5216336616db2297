"""What each Claude takes, by its name; and that a settled body holds nothing that it refuses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.providers.claude_models import ClaudeModel, claude_model, settle
from router.wire.anthropic.request import EFFORTS, MIN_THINKING_TOKENS

NAMES = (
    "claude-2.1",
    "claude-3-haiku-20240307",
    "claude-3-5-sonnet-20241022",
    "claude-3-7-sonnet-latest",
    "claude-opus-4-20250514",
    "claude-opus-4-1",
    "claude-sonnet-4-5-20250929",
    "us.anthropic.claude-haiku-4-5-20251001-v1:0",
    "claude-opus-4-5@20251101",
    "claude-sonnet-4-6",
    "claude-opus-4-7",
    "anthropic.claude-opus-4-8",
    "claude-opus-5",
    "claude-sonnet-5-20260601",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
    "claude-fable-5-1",
    "claude-mythos-preview",
    "claude-opus-9",
    "MiniMax-M2",
)


def body(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"max_tokens": 32_000, "messages": [{"role": "user", "content": "Go."}], **fields}


def settled(name: str, **fields: Any) -> tuple[dict[str, Any], list[str]]:  # noqa: ANN401
    made, losses = settle(body(**fields), claude_model(name))
    assert all(loss.message.endswith(".") for loss in losses)
    return made, [loss.param for loss in losses]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("claude-2.1", (False, False, {}, True, 0)),
        ("claude-3-5-sonnet-20241022", (False, False, {}, True, 0)),
        ("claude-3-7-sonnet-latest", (True, False, {}, True, 0)),
        ("claude-opus-4-20250514", (True, False, {}, True, 0)),
        ("claude-sonnet-4-5-20250929", (True, False, {}, True, 0)),
        ("claude-opus-4-5@20251101", (True, False, {}, True, 3)),
        ("claude-sonnet-4-6", (True, True, {}, True, 4)),
        ("us.anthropic.claude-opus-4-6-v1", (True, True, {}, True, 4)),
        ("claude-opus-4-7", (False, True, {}, False, 5)),
        ("claude-opus-5", (False, True, {"type": "disabled"}, False, 5)),
        ("claude-sonnet-5-20260601", (False, True, {"type": "disabled"}, False, 5)),
        ("claude-opus-5-5", (False, True, None, False, 5)),
        ("claude-sonnet-5.5", (False, True, {"type": "between_tools"}, False, 5)),
        ("claude-haiku-5-5", (False, True, {"type": "disabled"}, False, 5)),
        ("claude-fable-5", (False, True, None, False, 5)),
        ("claude-mythos-preview", (False, True, None, False, 5)),
        ("claude-opus-9-20300101", (False, True, None, False, 5)),
        ("MiniMax-M2", (True, False, {}, True, 0)),
    ],
)
def test_rows(name: str, row: tuple[bool, bool, dict[str, str] | None, bool, int]) -> None:
    """Takes a budget, thinks adaptively, what switches it off, samples, how many efforts."""
    model = claude_model(name)
    found = (model.budget, model.adaptive, model.off, model.samples, len(model.efforts))
    assert found == row


# -- Thinking --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "thinking", "config", "lost"),
    [
        ("claude-opus-4-7", {"type": "adaptive"}, {"effort": "high"}, []),
        ("claude-opus-4-6", {"type": "adaptive"}, {"effort": "high"}, []),
        ("claude-opus-4-5", {"type": "enabled", "budget_tokens": 25_600}, {"effort": "high"}, []),
        ("claude-sonnet-4-5", {"type": "enabled", "budget_tokens": 25_600}, None, []),
        ("claude-3-5-haiku", None, None, ["reasoning_effort"]),
    ],
)
def test_an_effort(name: str, thinking: object, config: object, lost: list[str]) -> None:
    made, losses = settled(name, thinking={"type": "adaptive"}, output_config={"effort": "high"})
    assert (made.get("thinking"), made.get("output_config")) == (thinking, config)
    assert losses == lost


@pytest.mark.parametrize(
    ("name", "thinking", "lost"),
    [
        ("claude-3-5-haiku", None, []),
        ("claude-sonnet-4-5", None, []),
        ("claude-opus-4-7", None, []),
        ("claude-opus-5", {"type": "disabled"}, []),
        ("claude-sonnet-5-5", {"type": "between_tools"}, []),
        ("claude-opus-5-5", None, ["reasoning_effort"]),
    ],
)
def test_no_thinking(name: str, thinking: object, lost: list[str]) -> None:
    made, losses = settled(name, thinking={"type": "disabled"})
    assert made.get("thinking") == thinking
    assert made.get("output_config") == ({"effort": "low"} if lost else None)
    assert losses == lost


@pytest.mark.parametrize(
    ("name", "thinking", "lost"),
    [
        ("claude-sonnet-4-5", {"type": "enabled", "budget_tokens": 2_000}, []),
        ("claude-opus-4-6", {"type": "enabled", "budget_tokens": 2_000}, []),
        ("claude-opus-4-7", {"type": "adaptive"}, ["reasoning_effort"]),
    ],
)
def test_a_budget(name: str, thinking: object, lost: list[str]) -> None:
    made, losses = settled(name, thinking={"type": "enabled", "budget_tokens": 2_000})
    assert (made["thinking"], losses) == (thinking, lost)


def test_an_effort_that_a_model_has_no_word_for_is_the_next_one_down() -> None:
    made, losses = settled("claude-sonnet-4-6", output_config={"effort": "xhigh", "format": {}})
    assert made["output_config"] == {"effort": "high", "format": {}}
    assert losses == ["reasoning_effort"]
    made, losses = settled("claude-opus-4-7", output_config={"effort": "of tomorrow"})
    assert "output_config" not in made
    assert losses == ["reasoning_effort"]


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "t"}])
def test_a_call_that_must_be_made_is_not_thought_about(choice: dict[str, str]) -> None:
    made, losses = settled("claude-sonnet-4-6", thinking={"type": "adaptive"}, tool_choice=choice)
    assert "thinking" not in made
    assert made["tool_choice"] == choice
    assert losses == ["reasoning_effort"]


def test_a_model_that_cannot_be_made_to_call_a_tool_may_still_call_it() -> None:
    choice = {"type": "tool", "name": "t", "disable_parallel_tool_use": True}
    made, losses = settle(body(tool_choice=choice), claude_model("claude-sonnet-5-5"))
    assert made["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert [(loss.param, loss.hint) for loss in losses] == [("tool_choice", False)]


def test_without_its_thoughts_a_model_thinks_on_only_in_its_own_way() -> None:
    call = {"type": "tool_use", "id": "1", "name": "t", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": "Fog."}
    history = [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    made, losses = settled("claude-sonnet-4-5", thinking={"type": "adaptive"}, messages=history)
    assert "thinking" not in made
    assert losses == ["reasoning_effort"]
    budget = {"type": "enabled", "budget_tokens": 2_000}
    made, losses = settled("claude-sonnet-4-6", thinking=budget, messages=history)
    assert (made["thinking"], losses) == ({"type": "adaptive"}, ["reasoning_effort"])
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    history[0] = {"role": "assistant", "content": [thought, call]}
    made, losses = settled("claude-sonnet-4-5", thinking=budget, messages=history)
    assert (made["thinking"], losses) == (budget, [])


# -- Sampling and budgets --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kept", "lost"),
    [
        ("claude-3-5-haiku", {"temperature": 0.2, "top_p": 0.9, "top_k": 5}, []),
        ("claude-sonnet-4-5", {"temperature": 0.2, "top_k": 5}, ["top_p"]),
        ("claude-opus-4-7", {}, ["temperature", "top_p", "top_k"]),
        ("MiniMax-M2", {"temperature": 0.2, "top_p": 0.9, "top_k": 5}, []),
    ],
)
def test_sampling(name: str, kept: dict[str, float], lost: list[str]) -> None:
    made, losses = settled(name, temperature=0.2, top_p=0.9, top_k=5)
    assert {k: v for k, v in made.items() if k in ("temperature", "top_p", "top_k")} == kept
    assert losses == lost


def test_a_default_is_left_out_without_a_word() -> None:
    made, losses = settled("claude-opus-4-7", temperature=1, top_p=1.0, top_k=1)
    assert (made, losses) == (body(), ["top_k"])
    made, losses = settled("claude-sonnet-4-5", temperature=0.5, top_p=1)
    assert (made, losses) == (body(temperature=0.5), [])


def test_while_it_thinks_nothing_is_sampled_otherwise() -> None:
    made, losses = settled(
        "claude-sonnet-4-6", thinking={"type": "adaptive"}, temperature=0.5, top_p=0.97, top_k=9
    )
    assert (made["top_p"], losses) == (0.97, ["temperature", "top_k"])


def test_an_old_model_is_asked_for_as_much_as_it_can_say() -> None:
    def budget(name: str, **said: int) -> tuple[int, list[str]]:
        made, losses = settled(name, **said)
        return made["max_tokens"], losses

    assert budget("claude-3-5-haiku") == (8_192, [])  # the client did not say
    assert budget("claude-3-5-haiku", max_tokens=9_000) == (8_192, ["max_tokens"])
    assert budget("claude-3-haiku", max_tokens=100) == (100, [])


# -- Whatever is asked -----------------------------------------------------------------------------

BODIES = st.fixed_dictionaries(
    {"max_tokens": st.integers(1, 100_000), "messages": st.just([])},
    optional={
        "thinking": st.sampled_from(
            [
                None,
                {"type": "disabled"},
                {"type": "between_tools"},
                {"type": "adaptive"},
                {"type": "adaptive", "display": "omitted"},
                {"type": "enabled", "budget_tokens": 1},
                {"type": "enabled", "budget_tokens": 50_000, "display": "summarized"},
            ]
        ),
        "output_config": st.sampled_from([{"effort": word} for word in (*EFFORTS, "odd")]),
        "tool_choice": st.sampled_from([{"type": "auto"}, {"type": "any"}, {"type": "none"}]),
        "temperature": st.none() | st.floats(0, 1),
        "top_p": st.none() | st.floats(0, 1),
        "top_k": st.none() | st.integers(1, 50),
    },
)


def refusals(made: dict[str, Any], model: ClaudeModel) -> list[str]:
    """What the model's server would answer 400 to."""
    made = {name: value for name, value in made.items() if value is not None}
    thinking = made.get("thinking", {})
    kind, forced = thinking.get("type"), made.get("tool_choice", {}).get("type") == "any"
    thinks = kind in ("enabled", "adaptive")
    effort = made.get("output_config", {}).get("effort")
    budget = thinking.get("budget_tokens")
    found = {
        "adaptive": kind == "adaptive" and not model.adaptive,
        "enabled": kind == "enabled" and not model.budget,
        "budget": budget is not None and not MIN_THINKING_TOKENS <= budget < made["max_tokens"],
        "off": kind in ("disabled", "between_tools") and model.off != {"type": kind},
        "display": "display" in thinking and not model.adaptive,
        "effort": effort is not None and effort not in model.efforts,
        "forced": forced and (not model.forced or thinks),
        "sampling": not model.samples and bool(made.keys() & {"temperature", "top_p", "top_k"}),
        "both": not model.both and {"temperature", "top_p"} <= made.keys(),
        "thinks": thinks
        and ("temperature" in made or "top_k" in made or made.get("top_p", 1) < 0.95),
    }
    return [name for name, holds in found.items() if holds]


@given(asked=BODIES, name=st.sampled_from(NAMES))
def test_a_settled_body_is_taken_and_says_what_it_lost(asked: dict[str, Any], name: str) -> None:
    model, before = claude_model(name), copy.deepcopy(asked)
    made, losses = settle(asked, model)
    assert asked == before
    assert refusals(made, model) == []
    if not refusals(asked, model) and not losses:
        changed = {k for k in asked if made.get(k) != asked[k]}
        assert changed <= {"max_tokens", "thinking", "temperature", "top_p"}
