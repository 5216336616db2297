from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulate_kit import post

from router.core.continuation import Style
from router.simulate.answer import Ask, Conduct, Script, compose
from router.simulate.openai import OpenAIWire
from router.simulate.prefix import BEHAVIOURS, PREAMBLE, Prefix, locate
from router.simulate.text import seeded_text

TEXT = seeded_text(5, 1_500)
OTHER = seeded_text("other wording", 300)
SCRIPT = Script(text=TEXT, other_text=OTHER)


def said(prefix: str, behaviour: str = "continue", style: Style = Style.ASSISTANT_TAIL) -> str:
    ask = Ask(prefix=Prefix(text=prefix, style=style, nudge="Continue."))
    return compose(ask, SCRIPT, Conduct(prefix=behaviour)).text()


@given(st.integers(min_value=1, max_value=len(TEXT)))
def test_the_rest_follows_exactly(at: int) -> None:
    assert TEXT[:at] + said(TEXT[:at]) == TEXT


@given(st.integers(min_value=1, max_value=len(TEXT) - 1), st.integers(0, len(OTHER)))
def test_the_other_wording_goes_on_where_it_was_cut(at: int, later: int) -> None:
    first = said(TEXT[:at], "differ")
    assert first.endswith(OTHER)
    gap = len(first) - len(OTHER)
    so_far = TEXT[:at] + first[: gap + later]
    if later:
        assert so_far + said(so_far) == TEXT[:at] + first
        assert so_far + said(so_far, "differ") == TEXT[:at] + first


@pytest.mark.parametrize(
    ("behaviour", "start"),
    [
        ("continue", " Third"),
        ("strip", "Third"),
        ("echo", "First. Second. Third"),
        ("echo_tail", " Second. Third"),
        ("afresh", "First. Second"),
        ("preamble", f"{PREAMBLE} Third"),
        ("preamble_stripped", f"{PREAMBLE}Third"),
        ("differ", " Else."),
        ("refence", " Third"),
    ],
)
def test_each_behaviour(behaviour: str, start: str) -> None:
    script = Script(text="First. Second. Third. Fourth.", other_text="Else. Quite.")
    ask = Ask(prefix=Prefix(text="First. Second.", style=Style.PREFIX_FLAG))
    answer = compose(ask, script, Conduct(prefix=behaviour))
    assert answer.text().startswith(start)
    assert answer.behaviour == behaviour
    assert answer.found is True


def test_every_behaviour_is_tested() -> None:
    parameters = test_each_behaviour.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {name for name, _ in parameters} | {"empty"} == set(BEHAVIOURS)


def test_an_empty_continuation_stops_at_once() -> None:
    ask = Ask(prefix=Prefix(text=TEXT[:50], style=Style.ASSISTANT_TAIL))
    answer = compose(ask, SCRIPT, Conduct(prefix="empty"))
    assert (answer.pieces, answer.reason) == ((), "stop")


def test_an_open_fence_is_opened_again() -> None:
    script = Script(text="See:\n\n```python\na = 1\nb = 2\n```\nDone.")
    prefix = Prefix(text="See:\n\n```python\na = 1", style=Style.INSTRUCT, nudge="Go on.")
    answer = compose(Ask(prefix=prefix), script, Conduct(prefix="refence"))
    assert answer.text() == "```python\nb = 2\n```\nDone."


def test_an_unknown_prefix_is_answered_afresh() -> None:
    ask = Ask(prefix=Prefix(text="Never said.", style=Style.ASSISTANT_TAIL))
    answer = compose(ask, SCRIPT, Conduct())
    assert (answer.text(), answer.found) == (TEXT, False)
    assert locate("Never said.", TEXT, OTHER) is None


def test_a_refusal_is_for_tails_and_not_for_instructions() -> None:
    conduct = Conduct(prefix="refuse", refusal="gemini")
    tail = Ask(prefix=Prefix(text=TEXT[:20], style=Style.ASSISTANT_TAIL))
    told = Ask(prefix=Prefix(text=TEXT[:20], style=Style.INSTRUCT, nudge="Go on."))
    assert compose(tail, SCRIPT, conduct).refused == (
        "Requests ending with a model turn are not supported."
    )
    assert TEXT[:20] + compose(told, SCRIPT, conduct).text() == TEXT


def test_only_accepted_styles_are_taken() -> None:
    conduct = Conduct(accepts=frozenset({Style.PREFIX_FLAG}), refusal="No.")
    bare = Ask(prefix=Prefix(text=TEXT[:20], style=Style.ASSISTANT_TAIL))
    flagged = Ask(prefix=Prefix(text=TEXT[:20], style=Style.PREFIX_FLAG))
    assert compose(bare, SCRIPT, conduct).refused == "No."
    assert compose(flagged, SCRIPT, conduct).refused is None


@pytest.mark.parametrize(
    ("nudge", "rest"),
    [
        ("And what about the valves?", TEXT),
        ("Please continue.", ""),
        (f"It ends in {json.dumps(TEXT[-40:])}. Only what follows.", ""),
    ],
)
def test_a_whole_answer_and_a_next_question(nudge: str, rest: str) -> None:
    ask = Ask(prefix=Prefix(text=TEXT, style=Style.INSTRUCT, nudge=nudge))
    assert compose(ask, SCRIPT, Conduct()).text() == rest


def test_a_conversation_about_something_else_is_no_prefix() -> None:
    ask = Ask(prefix=Prefix(text="Hello!", style=Style.INSTRUCT, nudge="Continue."))
    answer = compose(ask, SCRIPT, Conduct())
    assert (answer.text(), answer.behaviour) == (TEXT, "")


def asked(*messages: dict[str, Any], **fields: object) -> Ask:
    body = {"messages": [{"role": "user", "content": "Q"}, *messages], **fields}
    return OpenAIWire().ask(post("/v1/chat/completions"), body)


HALF = {"role": "assistant", "content": "Half"}


@pytest.mark.parametrize(
    ("messages", "fields", "style"),
    [
        ([HALF], {}, Style.ASSISTANT_TAIL),
        ([HALF | {"prefix": True}], {}, Style.PREFIX_FLAG),
        ([HALF | {"partial": True}], {}, Style.PARTIAL_FLAG),
        (
            [HALF],
            {"continue_final_message": True, "add_generation_prompt": False},
            Style.CONTINUE_FINAL,
        ),
        ([HALF, {"role": "user", "content": "Go on."}], {}, Style.INSTRUCT),
        ([HALF | {"content": [{"type": "text", "text": "Half"}]}], {}, Style.ASSISTANT_TAIL),
    ],
)
def test_every_wire_style_is_recognised(
    messages: list[dict[str, Any]], fields: dict[str, Any], style: Style
) -> None:
    prefix = asked(*messages, **fields).prefix
    assert prefix is not None
    assert (prefix.text, prefix.style) == ("Half", style)


@pytest.mark.parametrize("fields", [{}, {"add_generation_prompt": True}])
def test_both_flags_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Cannot set both"):
        asked(HALF, continue_final_message=True, **fields)


def test_no_prefix() -> None:
    assert asked().prefix is None
    assert asked({"role": "assistant", "content": None, "tool_calls": []}).prefix is None
    assert asked(HALF, {"role": "tool", "content": "3"}).prefix is None


def test_an_unknown_behaviour_is_an_error() -> None:
    with pytest.raises(ValueError, match="Unknown behaviour 'sing'"):
        Conduct(prefix="sing")
    with pytest.raises(ValueError, match="Unknown behaviour 'sing'"):
        Conduct(instruct="sing")
