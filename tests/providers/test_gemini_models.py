"""What each Gemini takes of a request, and that nothing is taken out without a word."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.conversation import Loss
from router.providers.gemini_models import ALL_LEVELS, gemini_model, settle

CONTENTS = [{"role": "user", "parts": [{"text": "Hi."}]}]
MODELS = (
    *("gemini-1.5-pro", "gemini-2.0-flash", "gemini-2.5-pro", "gemini-2.5-flash"),
    *("gemini-2.5-flash-lite", "gemini-3-pro-preview", "gemini-3-flash-preview"),
    *("gemini-3.1-pro-preview", "gemini-3.1-flash-lite", "gemini-3.5-flash"),
    *("gemini-3.5-flash-lite", "gemini-3.6-flash", "gemini-3.8-flash", "gemini-flash-latest"),
    *("gemini-4-pro", "gemma-3-27b-it", "publishers/google/models/gemini-2.5-flash"),
)


def settled(
    model: str, config: Mapping[str, object], *, vertex: bool = False
) -> tuple[dict[str, Any], tuple[Loss, ...]]:
    body = {"contents": CONTENTS, "generationConfig": config}
    written, losses = settle(body, gemini_model(model), vertex=vertex)
    return written.get("generationConfig", {}), losses


def thinking(model: str, **said: object) -> tuple[dict[str, Any], list[str]]:
    config, losses = settled(model, {"thinkingConfig": said})
    assert all(loss.hint for loss in losses)
    return config.get("thinkingConfig", {}), [loss.message for loss in losses]


# -- Thinking --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "said", "sent"),
    [
        # The table of https://ai.google.dev/gemini-api/docs/openai#thinking.
        ("gemini-3.1-pro-preview", {"thinkingLevel": "MINIMAL"}, {"thinkingLevel": "LOW"}),
        ("gemini-3.1-pro-preview", {"thinkingLevel": "MEDIUM"}, {"thinkingLevel": "MEDIUM"}),
        ("gemini-3.1-flash-lite", {"thinkingLevel": "MINIMAL"}, {"thinkingLevel": "MINIMAL"}),
        ("gemini-3-pro-preview", {"thinkingLevel": "MEDIUM"}, {"thinkingLevel": "HIGH"}),
        ("gemini-3-flash-preview", {"thinkingLevel": "HIGH"}, {"thinkingLevel": "HIGH"}),
        ("gemini-2.5-flash", {"thinkingLevel": "MINIMAL"}, {"thinkingBudget": 1024}),
        ("gemini-2.5-flash", {"thinkingLevel": "LOW"}, {"thinkingBudget": 1024}),
        ("gemini-2.5-flash", {"thinkingLevel": "MEDIUM"}, {"thinkingBudget": 8192}),
        ("gemini-2.5-pro", {"thinkingLevel": "HIGH"}, {"thinkingBudget": 24576}),
        # More than there is, and numbers in the place of words.
        ("gemini-3.8-flash", {"thinkingLevel": "XHIGH"}, {"thinkingLevel": "HIGH"}),
        ("gemini-2.5-pro", {"thinkingLevel": "MAX"}, {"thinkingBudget": 32768}),
        ("gemini-3.6-flash", {"thinkingBudget": 1000}, {"thinkingLevel": "LOW"}),
        ("gemini-3.6-flash", {"thinkingBudget": 8192}, {"thinkingLevel": "MEDIUM"}),
        ("gemini-3.6-flash", {"thinkingBudget": 50000}, {"thinkingLevel": "HIGH"}),
        ("gemini-2.5-flash", {"thinkingBudget": 50000}, {"thinkingBudget": 24576}),
        ("gemini-2.5-flash-lite", {"thinkingBudget": 5}, {"thinkingBudget": 512}),
        # An effort and a number: each model takes what it knows.
        (
            "gemini-2.5-flash",
            {"thinkingLevel": "LOW", "thinkingBudget": 2000},
            {"thinkingBudget": 2000},
        ),
        (
            "gemini-3.8-flash",
            {"thinkingLevel": "LOW", "thinkingBudget": 20000},
            {"thinkingLevel": "LOW"},
        ),
        # As the model likes.
        ("gemini-2.5-flash-lite", {"thinkingBudget": -1}, {"thinkingBudget": -1}),
        ("gemini-3.8-flash", {"thinkingBudget": -1}, {}),
        ("gemini-2.5-pro", {"includeThoughts": True}, {"includeThoughts": True}),
    ],
)
def test_an_effort_in_the_words_of_the_model(
    model: str, said: dict[str, object], sent: dict[str, object]
) -> None:
    assert thinking(model, **said) == (sent, [])


@pytest.mark.parametrize(
    ("model", "sent", "always"),
    [
        ("gemini-2.5-flash", {"thinkingBudget": 0}, False),
        ("gemini-2.5-pro", {"thinkingBudget": 128}, True),
        ("gemini-3.6-flash", {"thinkingLevel": "MINIMAL"}, False),
        ("gemini-3.8-flash", {"thinkingLevel": "LOW"}, True),
        ("gemini-3-pro-preview", {"thinkingLevel": "LOW"}, True),
        ("gemini-2.0-flash", {}, False),
    ],
)
def test_no_thinking_is_the_least_there_is(
    model: str, sent: dict[str, object], *, always: bool
) -> None:
    said, messages = thinking(model, thinkingBudget=0)
    assert said == sent
    assert bool(messages) is always
    asked = {"thinkingLevel": "HIGH", "includeThoughts": True}
    patched, _ = thinking(model, thinkingBudget=0, **asked)  # by a merge patch
    assert patched == sent


def test_a_model_that_does_not_think_is_not_asked_to() -> None:
    sent, messages = thinking("gemini-2.0-flash", thinkingLevel="LOW", includeThoughts=True)
    assert sent == {}
    assert len(messages) == 1


def test_an_effort_that_nobody_knows_is_left_out() -> None:
    sent, messages = thinking("gemini-3.8-flash", thinkingLevel="ULTRA", includeThoughts=True)
    assert sent == {"includeThoughts": True}
    assert len(messages) == 1


# -- Everything else -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "lost"),
    [
        ("gemini-2.0-flash", []),
        ("gemini-2.5-flash", ["presence_penalty"]),
        ("gemini-3.5-flash", ["presence_penalty"]),
        ("gemini-3.5-flash-lite", ["temperature", "top_p", "top_k", "presence_penalty"]),
        ("gemini-3.8-flash", ["temperature", "top_p", "top_k", "presence_penalty"]),
        ("gemini-flash-latest", ["temperature", "top_p", "top_k", "presence_penalty"]),
        ("some-model", []),
    ],
)
def test_sampling(model: str, lost: list[str]) -> None:
    asked = {"temperature": 0.0, "topP": 0.5, "topK": 3, "presencePenalty": 1}
    config, losses = settled(model, asked | {"frequencyPenalty": 0})
    assert [loss.param for loss in losses] == lost
    assert all(loss.hint for loss in losses)
    assert len([name for name in asked if name in config]) == len(asked) - len(lost)


def test_several_answers_and_log_probabilities_are_demands() -> None:
    asked = {"candidateCount": 2, "responseLogprobs": True, "logprobs": 3}
    assert settled("gemini-2.0-flash", asked) == (asked, ())
    config, losses = settled("gemini-3.8-flash", asked)
    assert config == {}
    assert [(loss.param, loss.hint) for loss in losses] == [("n", False), ("logprobs", False)]


def test_log_probabilities_of_2_5_are_vertex_ais() -> None:
    asked = {"responseLogprobs": True}
    assert settled("gemini-2.5-flash", asked, vertex=True) == (asked, ())
    assert settled("gemini-2.5-flash", asked)[0] == {}


TOOLS = [{"functionDeclarations": [{"name": "f"}]}]
JSON = {"responseMimeType": "application/json"}


@pytest.mark.parametrize(("schema", "hint"), [({"responseJsonSchema": {}}, False), ({}, True)])
def test_structured_output_beside_tools(schema: dict[str, object], *, hint: bool) -> None:
    body = {"contents": CONTENTS, "tools": TOOLS, "generationConfig": JSON | schema}
    old, losses = settle(body, gemini_model("gemini-2.5-flash"), vertex=False)
    assert "generationConfig" not in old
    assert [(loss.param, loss.hint) for loss in losses] == [("response_format", hint)]
    new, losses = settle(body, gemini_model("gemini-3-flash-preview"), vertex=False)
    assert new == body
    assert losses == ()


def test_only_gemini_3_is_told_that_a_call_has_no_signature() -> None:
    call = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "skip"}
    body = {"contents": [*CONTENTS, {"role": "model", "parts": [{"text": "a"}, call]}]}
    old, _ = settle(body, gemini_model("gemini-2.5-flash"), vertex=False)
    assert old["contents"][1]["parts"][1] == {"functionCall": {"name": "f", "args": {}}}
    assert old["contents"][0] is CONTENTS[0]
    for model in ("gemini-3-pro-preview", "gemini-3.8-flash", "gemini-flash-latest", "other"):
        assert settle(body, gemini_model(model), vertex=False)[0] == body


FIELDS = {
    "temperature": st.sampled_from([0, 0.5]),
    "topK": st.just(4),
    "maxOutputTokens": st.just(100),
    "presencePenalty": st.sampled_from([0, 0.5]),
    "candidateCount": st.just(2),
    "responseLogprobs": st.just(value=True),
    "responseMimeType": st.just("application/json"),
    "thinkingConfig": st.fixed_dictionaries(
        {},
        optional={
            "thinkingLevel": st.sampled_from([*ALL_LEVELS, "XHIGH", "MAX", "?"]),
            "thinkingBudget": st.integers(-1, 40_000),
            "includeThoughts": st.booleans(),
        },
    ),
}


@given(st.sampled_from(MODELS), st.fixed_dictionaries({}, optional=FIELDS), st.booleans())
def test_any_request_is_settled_once_and_for_all(
    name: str, config: dict[str, Any], tools: bool
) -> None:
    body = {"contents": CONTENTS, "generationConfig": config, **({"tools": TOOLS} if tools else {})}
    before = copy.deepcopy(body)
    model = gemini_model(name)
    written, _ = settle(body, model, vertex=False)
    assert body == before
    assert settle(written, model, vertex=False) == (written, ())
    said = written.get("generationConfig", {}).get("thinkingConfig", {})
    assert not {"thinkingLevel", "thinkingBudget"} <= said.keys()  # both are refused with 400
    assert "thinkingLevel" not in said or said["thinkingLevel"] in model.levels
