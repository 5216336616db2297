"""Two cuts in one answer, no target left, and the blocking path: how such streams end."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from support.continuity import FULL, MESSAGES, house
from support.reading import Answer, check_contract
from support.texts import OTHER, seeded

from router.simulate import Conduct, Script, tokenize

TEXT = next(one.text for one in seeded(seed=5, chars=260) if one.name == "mixed")
CODE = next(one.text for one in seeded(seed=5, chars=260) if one.name == "code")
TOKENS = len(tokenize(TEXT))
STEP = 2 if FULL else 9


def prefix_of(text: str, tokens: int) -> str:
    return "".join(tokenize(text)[:tokens])


def metadata_on_the_finish_only(answer: Answer) -> dict[str, Any]:
    carriers = [chunk for chunk in answer.chunks if "router" in chunk]
    assert len(carriers) == 1
    assert [choice["finish_reason"] for choice in carriers[0]["choices"]] == ["stop"]
    found: dict[str, Any] = carriers[0]["router"]
    return found


# -- two cuts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("behaviour", ["continue", "echo", "afresh", "preamble", "strip"])
@pytest.mark.parametrize("text", [TEXT, CODE], ids=["mixed", "code"])
async def test_two_cuts_in_one_answer(text: str, behaviour: str) -> None:
    """The second one strikes anywhere: while an echo is dropped, in a preamble, at once, late."""
    count = len(tokenize(text))
    struck = 0
    async with house(text, Conduct(prefix=behaviour), Conduct(prefix=behaviour)) as place:
        for first in range(2, count, 4 * STEP):
            for second in (0, 1, 3, 6, *range(10, count + 2, 2 * STEP)):
                place.providers[0].set_faults(f"cut@{first}")
                place.providers[1].set_faults(f"rst@{second}")
                answer = await place.read()
                check_contract(answer)
                assert answer.delivered == text, (first, second)
                facts = metadata_on_the_finish_only(answer)
                assert facts["superseded"] == []
                faults = [one["fault"] for one in facts["attempts"]]
                struck += len(faults) == 3  # a short rest is told before the second one strikes
                assert faults == ["cut", "cut", None][-len(faults) :]
                assert [one["to"][:2] for one in facts["failovers"]] == ["p2", "p3"][
                    : len(faults) - 1
                ]
    assert struck >= 10


async def test_two_cuts_and_two_wordings() -> None:
    """What was reworded once is gone on with; the ranges still give the canonical text."""
    script = Script(text=TEXT, other_text=OTHER)
    async with house(TEXT, script, script) as place:
        for one in place.providers[1:]:
            one.manner.conduct = Conduct(prefix="differ")
        for first in range(TOKENS // 2, TOKENS, 3 * STEP):
            for second in range(0, len(tokenize(OTHER)), 2 * STEP):
                place.providers[0].set_faults(f"cut@{first}")
                place.providers[1].set_faults(f"cut@{second}")
                answer = await place.read()
                check_contract(answer)
                facts = metadata_on_the_finish_only(answer)
                committed = facts["failovers"][0]["committed_chars"]
                assert committed
                rest = TEXT[committed:]
                gap = rest[: len(rest) - len(rest.lstrip())]
                assert answer.canonical == TEXT[:committed] + gap + OTHER, (first, second)
                assert len(facts["superseded"]) <= 2


async def test_openai_sees_one_answer_of_three_targets() -> None:
    async with house(TEXT, Conduct(prefix="echo"), Conduct(prefix="preamble")) as place:
        place.providers[0].set_faults(f"cut@{TOKENS // 3}")
        place.providers[1].set_faults(f"cut@{TOKENS // 2}")
        heard = await place.hear(stream_options={"include_usage": True})
        assert heard.error is None
        assert heard.delivered == TEXT
        assert (len(heard.ids), len(heard.models), heard.roles) == (1, 1, ["assistant"])
        assert heard.finishes == ["stop"]
        ((finish, facts),) = heard.metadata
        assert finish == "stop"
        assert facts["outcome"] == "completed"
        assert len(facts["failovers"]) == 2


async def test_the_first_target_may_have_recovered() -> None:
    """With one target there is nobody else: it is asked to go on itself."""
    async with house(TEXT) as place:
        place.providers[0].set_faults([f"cut@{TOKENS // 2}"])
        heard = await place.hear()
        assert heard.error is None
        assert heard.delivered == TEXT
        assert [one["target"][:2] for one in heard.facts["attempts"]] == ["p1", "p1"]


async def test_a_fallback_that_says_nothing_is_a_fault_of_its_own() -> None:
    """An empty `stop` after a cut in mid-sentence is no success."""
    async with house(TEXT, Conduct(prefix="empty"), Conduct()) as place:
        for cut in range(TOKENS // 2, TOKENS, STEP):
            place.providers[0].set_faults(f"cut@{cut}")
            answer = await place.read()
            check_contract(answer)
            assert answer.delivered == TEXT
            faults = [one["fault"] for one in metadata_on_the_finish_only(answer)["attempts"]]
            assert faults == ["cut", "truncated", None]


async def test_the_order_of_targets_is_kept() -> None:
    async with house(TEXT, Conduct(), Conduct()) as place:
        for at in (1, 2):
            place.providers[at].set_faults("status=500")
        place.providers[0].set_faults([f"cut@{TOKENS // 2}"])
        heard = await place.hear()
        order = [one["target"][:2] for one in heard.facts["attempts"]]
        assert order[:3] == ["p1", "p2", "p3"]
        assert place.asked(0) == 1  # one that failed is not asked again while another may be
        assert heard.error is not None


# -- nobody left -----------------------------------------------------------------------------------

HOPELESS = "unauthorized"


@pytest.mark.parametrize("kind", ["cut", "rst", "error", "no_finish", "done_early", "malformed"])
async def test_no_target_left_is_an_error_in_band(kind: str) -> None:
    async with house(TEXT, Conduct()) as place:
        place.providers[1].set_faults(HOPELESS)
        for cut in range(1, TOKENS, 4 * STEP):
            # It fails in the same way when it is asked again, after all others.
            place.providers[0].set_faults([f"{kind}@{cut}", *[HOPELESS] * 3])
            answer = await place.read()
            assert answer.status == 200
            error = answer.error  # the last thing, without `choices`
            assert error is not None
            assert error["code"] == "stream_interrupted"
            assert error["type"] == "server_error"
            assert error["param"] is None
            assert answer.finish_reasons == []
            assert answer.done == 0
            assert answer.delivered == prefix_of(TEXT, cut)
            assert not any("router" in chunk for chunk in answer.chunks)
            faults = [one["fault"] for one in error["router"]["attempts"]]
            assert len(faults) >= 2
            assert None not in faults
            assert error["router"]["outcome"] == "stream_interrupted"


async def test_openai_raises_what_is_an_error() -> None:
    async with house(TEXT, Conduct()) as place:
        place.providers[1].set_faults(HOPELESS)
        place.providers[0].set_faults([f"cut@{TOKENS // 2}", HOPELESS])
        heard = await place.hear()
        assert isinstance(heard.error, openai.APIError)
        assert heard.error.code == "stream_interrupted"
        assert heard.error.type == "server_error"
        assert "p2" in heard.error.message or "p1" in heard.error.message
        assert heard.delivered == prefix_of(TEXT, TOKENS // 2)
        assert heard.finishes == []
        assert heard.metadata == []


async def test_attempts_are_bounded() -> None:
    route = {"max_attempts": 3}
    async with house(TEXT, Conduct(), Conduct(), Conduct(), route=route) as place:
        for provider in place.providers:
            provider.set_faults("cut@5")
        answer = await place.read()
        assert answer.error is not None
        assert len(answer.error["router"]["attempts"]) == 3
        assert [place.asked(at) for at in range(4)] == [1, 1, 1, 0]
        assert TEXT.startswith(answer.canonical)


async def test_all_fail_before_the_first_token_with_a_real_status() -> None:
    async with house(TEXT, Conduct()) as place:
        for provider in place.providers:
            provider.set_faults("status=503")
        with pytest.raises(openai.APIStatusError) as caught:
            await place.client.chat.completions.create(model="chat", messages=MESSAGES, stream=True)
        assert caught.value.status_code >= 500
        assert caught.value.response.headers["x-should-retry"] == "false"


# -- the blocking path -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "behaviour", ["continue", "echo", "afresh", "refuse", "strip", "preamble", "differ"]
)
async def test_a_blocking_request_gets_the_same_canonical_text(behaviour: str) -> None:
    """Both paths, the same faults: the whole completion is the stream's canonical text."""
    targets = [{}, {"continuation": {"style": "assistant_tail"}}]
    async with house(TEXT, Conduct(prefix=behaviour), targets=targets) as place:
        place.providers[1].manner.script = Script(text=TEXT, other_text=OTHER)
        for cut in range(0, TOKENS + 1, STEP):
            place.providers[0].set_faults(f"cut@{cut}")
            place.forget_refusals()
            whole = await place.whole()
            facts = whole["router"]
            (choice,) = whole["choices"]
            assert choice["finish_reason"] == "stop"
            content = choice["message"]["content"]
            place.forget_refusals()
            streamed = await place.read()
            assert content == streamed.canonical, cut
            if behaviour != "differ":
                assert content == TEXT, cut
            assert whole["object"] == "chat.completion"
            told = metadata_on_the_finish_only(streamed)
            assert [one["fault"] for one in facts["attempts"]] == [
                one["fault"] for one in told["attempts"]
            ]
            assert (
                facts["failovers"][-1]["committed_chars"]
                == (told["failovers"][-1]["committed_chars"])
            )
            assert facts["superseded"] == []  # nothing of it is in this text


async def test_a_blocking_request_that_cannot_go_on_is_no_success() -> None:
    async with house(TEXT, Conduct()) as place:
        place.providers[1].set_faults(HOPELESS)
        place.providers[0].set_faults([f"cut@{TOKENS // 2}", HOPELESS])
        with pytest.raises(openai.APIStatusError) as caught:
            await place.client.chat.completions.create(model="chat", messages=MESSAGES)
        assert caught.value.status_code == 502
        assert caught.value.code == "stream_interrupted"
        body = caught.value.body
        assert isinstance(body, dict)
        assert len(body["router"]["attempts"]) >= 2
