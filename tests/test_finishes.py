"""How answers end, over sockets: stop sequences, budgets, filters, refusals, reasoning, usage."""

from __future__ import annotations

from typing import Any

import pytest
from support.reading import Answer, check_contract
from support.texts import Sample, seeded, written
from support.toolcalls import DONE, Bench, bench, chunk, deltas_of, ends, text

from router.simulate import Dialect, Script, parse_dialect, tokenize

SAMPLES = [*seeded(seed=11, chars=320), *written()]
TEXT = SAMPLES[0].text
TOKENS = tokenize(TEXT)
SAYS = Script(text=TEXT)


def only(sample: Sample) -> str:
    """The first sentences of a text, so that a cut after every token is affordable."""
    return "".join(tokenize(sample.text)[:60])


def thoughts_of(answer: Answer) -> str:
    return "".join(delta.get("reasoning_content") or "" for delta in deltas_of(answer))


# --- stop sequences -------------------------------------------------------------------------------

STOPPED = "One. Two. Three is more. Four ends it."


@pytest.mark.parametrize("per_chunk", [1, 3])
@pytest.mark.parametrize(
    "stop", ["One. Two. Three", ". Two. Thr", "Two. Three", "o. Three", "Three"]
)
async def test_a_stop_sequence_split_across_a_failover(per_chunk: int, stop: str) -> None:
    uncut = STOPPED[: STOPPED.index(stop)]
    async with bench(SAYS, Script(text=STOPPED)) as place:
        place.providers[1].manner.dialect = Dialect(tokens_per_chunk=per_chunk)
        for fragment in (" ", " T", " Tw", " Two", " Two.", " Two. ", " Two. Th"):
            answer = await place.ask(ends(text("One.") + text(fragment)), stop=[stop, "nowhere"])
            check_contract(answer)
            assert answer.finish_reasons == ["stop"]
            assert place.asked == (1, 1)
            assert answer.metadata is not None
            committed = answer.metadata["failovers"][0]["committed_chars"]
            if len(uncut) >= committed:
                # The next provider generates all of the sequence, and stops before it; what had
                # been delivered of it is no part of the answer.
                assert answer.canonical == uncut
            else:
                # No provider generates all of it: the router stops, and what was delivered stands.
                assert answer.canonical == "One." + fragment


async def test_what_only_begins_like_a_stop_sequence_is_delivered() -> None:
    async with bench(SAYS, Script(text=STOPPED)) as place:
        for stop in ("Two. Thrice", "Two. Three is less", "Two. Four", ". Three!"):
            answer = await place.ask(ends(text("One. Two.") + text(" Th")), stop=stop)
            check_contract(answer)
            assert answer.canonical == STOPPED


@pytest.mark.parametrize("stop", ["Three is", ". Fo", "ends"])
async def test_stopped_at_every_cut_as_without_one(stop: str) -> None:
    uncut = STOPPED[: STOPPED.index(stop)]
    async with bench(Script(text=STOPPED), Script(text=STOPPED)) as place:
        for cut in range(len(tokenize(uncut))):
            place.providers[0].set_faults(f"cut@{cut}")
            answer = await place.ask(stop=[stop])
            check_contract(answer)
            assert (answer.canonical, answer.finish_reasons) == (uncut, ["stop"])


# --- the budget -----------------------------------------------------------------------------------


def limited(place: Bench, budget: int, cut: int | None) -> Any:  # noqa: ANN401 - a coroutine
    place.providers[0].set_faults(None if cut is None else f"cut@{cut}")
    return place.ask(max_tokens=budget)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
async def test_a_budget_across_a_failover_gives_the_uncut_length(sample: Sample) -> None:
    said = only(sample)
    tokens = tokenize(said)
    budget = 2 * len(tokens) // 3
    async with bench(Script(text=said), Script(text=said)) as place:
        uncut = await limited(place, budget, None)
        assert uncut.finish_reasons == ["length"]
        assert uncut.delivered == "".join(tokens[:budget])
        for cut in range(0, budget, 1 if sample.name in {"code", "japanese"} else 5):
            answer = await limited(place, budget, cut)
            check_contract(answer)
            assert answer.finish_reasons == ["length"]
            assert (cut, answer.canonical) == (cut, uncut.delivered)


@pytest.mark.parametrize("name", ["prose", "code", "japanese"])
async def test_a_budget_with_four_tokens_a_chunk_is_passed_by_little(name: str) -> None:
    (sample,) = (one for one in SAMPLES if one.name == name)
    tokens = tokenize(sample.text)
    budget = len(tokens) * 3 // 4
    async with bench(Script(text=sample.text), Script(text=sample.text)) as place:
        for provider in place.providers:
            provider.manner.dialect = Dialect(tokens_per_chunk=4)
        for cut in range(0, budget, 4):
            answer = await limited(place, budget, cut)
            check_contract(answer)
            assert sample.text.startswith(answer.canonical)
            committed = answer.metadata["failovers"][0]["committed_chars"]
            spent = len(tokenize(sample.text[:committed]))
            over = len(tokenize(answer.canonical)) - budget
            assert over <= spent / 2 + 8
            assert -over <= spent / 2


async def test_a_budget_over_two_failovers() -> None:
    async with bench(SAYS, SAYS, SAYS) as place:
        budget = len(TOKENS) * 3 // 4
        for first, second in ((10, 10), (30, 5), (3, 40)):
            place.providers[1].set_faults(f"cut@{second}")
            answer = await limited(place, budget, first)
            check_contract(answer)
            assert answer.canonical == "".join(TOKENS[:budget])
            assert place.asked == (1, 1, 1)


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_what_was_delivered_is_not_taken_back_for_want_of_budget(field: str) -> None:
    """A continuation whose budget ends inside what the client has already."""
    async with bench(SAYS, SAYS) as place:
        for cut in range(1, 40):
            place.providers[0].set_faults(f"cut@{cut}")
            had = "".join(TOKENS[:cut])
            budget: Any = {field: cut + 2}
            answer = await place.ask(**budget)
            check_contract(answer)
            assert answer.finish_reasons == ["length"]
            assert answer.canonical.startswith(had)
            assert (answer.metadata or {})["superseded"] == []


@pytest.mark.parametrize("word", ["length", "content_filter"])
@pytest.mark.parametrize("rest", [b"", text(" It"), text(" It is no")])
async def test_a_continuation_cut_short_in_known_text_ends_the_answer(
    word: str, rest: bytes
) -> None:
    async with bench(SAYS, SAYS) as place:
        place.providers[1].manner.raw = ends(rest + chunk(finish=word) + DONE, "end")
        answer = await place.ask(ends(text("It is so.") + text(" It is not so")))
        check_contract(answer)
        assert answer.finish_reasons == [word]
        if rest != text(" It is no"):
            assert answer.delivered == "It is so. It is not so"
        assert (answer.metadata or {})["superseded"] == []


async def test_a_continuation_that_stops_in_known_text_is_another_wording() -> None:
    async with bench(SAYS, SAYS) as place:
        place.providers[1].manner.raw = ends(text(" It is") + chunk(finish="stop") + DONE, "end")
        answer = await place.ask(ends(text("It is so.") + text(" It is not so")))
        check_contract(answer)
        assert answer.canonical == "It is so. It is"


async def test_length_in_mid_sentence_is_a_finish() -> None:
    async with bench(SAYS, SAYS) as place:
        answer = await place.ask(max_tokens=7)
        check_contract(answer)
        assert (answer.delivered, answer.finish_reasons) == ("".join(TOKENS[:7]), ["length"])
        assert place.asked == (1, 0)


# --- filters and refusals -------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["end", "fin", "rst"])
async def test_a_filter_in_mid_answer_is_passed_on_and_nobody_else_is_asked(after: str) -> None:
    body = text("It is so.") + text(" But") + chunk(finish="content_filter")
    async with bench(SAYS, SAYS) as place:
        answer = await place.ask(ends(body + (DONE if after == "end" else b""), after))
        check_contract(answer)
        assert (answer.delivered, answer.finish_reasons) == ("It is so. But", ["content_filter"])
        assert place.asked == (1, 0)
        assert answer.metadata is None


async def test_a_filter_before_the_answer_is_passed_on_too() -> None:
    async with bench(SAYS, SAYS) as place:
        answer = await place.ask(ends(chunk(finish="content_filter") + DONE, "end"))
        check_contract(answer)
        assert (answer.delivered, answer.finish_reasons) == ("", ["content_filter"])
        assert place.asked == (1, 0)
        place.providers[0].set_faults("content_policy")
        response = await place.post(stream=True)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "content_policy_violation"
        assert place.asked == (1, 0)


async def test_a_filter_after_a_failover_is_not_routed_around() -> None:
    async with bench(SAYS, SAYS, SAYS) as place:
        filtered = text(" It is") + chunk(finish="content_filter") + DONE
        place.providers[1].manner.raw = ends(filtered, "end")
        answer = await place.ask(ends(text("It is so.") + text(" It")))
        check_contract(answer)
        assert answer.finish_reasons == ["content_filter"]
        assert place.asked == (1, 1, 0)


REFUSAL = (chunk({"refusal": "I will"}), chunk({"refusal": " not."}), chunk(finish="stop"), DONE)


async def test_a_refusal_is_passed_on() -> None:
    async with bench(SAYS, SAYS) as place:
        answer = await place.ask(b"".join(REFUSAL))
        check_contract(answer)
        said = "".join(delta.get("refusal") or "" for delta in deltas_of(answer))
        assert (said, answer.delivered, place.asked) == ("I will not.", "", (1, 0))


async def test_a_refusal_that_breaks_off_is_not_routed_around() -> None:
    async with bench(SAYS, SAYS) as place:
        for events in (1, 2):
            answer = await place.ask(ends(b"".join(REFUSAL[:events])))
            assert answer.error is not None
            assert answer.error["code"] == "stream_interrupted"
            assert "a refusal" in answer.error["message"]
            assert (answer.done, answer.finish_reasons, place.asked) == (0, [], (1, 0))


# --- several choices, log probabilities -----------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"n": 2}, "several answers at once (`n`)"), ({"logprobs": True}, "(`logprobs`)")],
)
async def test_what_only_one_provider_can_give(fields: dict[str, Any], named: str) -> None:
    async with bench(SAYS, SAYS) as place:
        for fault in ("cut@0", "status=503", "error@0"):
            place.providers[0].set_faults(fault)
            answer = await place.ask(**fields)
            assert answer.error is None
            assert place.asked == (1, 1)
        place.providers[0].set_faults("cut@5")
        answer = await place.ask(**fields)
        assert answer.error is not None
        assert answer.error["code"] == "stream_interrupted"
        assert named in answer.error["message"]
        assert (answer.done, answer.finish_reasons, place.asked) == (0, [], (1, 0))


def choices(*said: tuple[int, str | None]) -> bytes:
    """Events of several choices; None is a finish."""
    return b"".join(
        chunk({} if words is None else {"content": words}, None if words else "stop").replace(
            b'{"delta"', b'{"index":%d,"delta"' % index
        )
        for index, words in said
    )


async def test_every_choice_that_was_asked_for_must_finish() -> None:
    async with bench(SAYS, SAYS) as place:
        # The second choice begins when the first is whole: a cut between them is no success.
        answer = await place.ask(ends(choices((0, "Yes."), (0, None))), n=2)
        assert answer.error is not None
        assert answer.finish_reasons == []
        whole = choices((0, "Yes."), (0, None), (1, "No."), (1, None)) + DONE
        answer = await place.ask(whole, n=2)
        assert answer.error is None
        assert answer.finish_reasons == ["stop", "stop"]
        # A provider that knows no `n` gives one, and says that this was all.
        answer = await place.ask(choices((0, "Yes."), (0, None)) + DONE, n=2)
        check_contract(answer)


# --- reasoning ------------------------------------------------------------------------------------

THOUGHT = "Let me think about it for a while."
THINKS = Script(text=TEXT, reasoning=THOUGHT)
THOUGHTS = len(tokenize(THOUGHT))


async def test_reasoning_is_forwarded_and_a_fault_in_it_is_invisible() -> None:
    async with bench(THINKS, THINKS) as place:
        answer = await place.ask(headers={"X-Router-Metadata": "always"})
        check_contract(answer)
        assert (thoughts_of(answer), answer.delivered) == (THOUGHT, TEXT)
        assert answer.metadata is not None
        assert answer.metadata["attempts"][0]["reasoning_chars"] == len(THOUGHT)
        for cut in range(1, THOUGHTS + 1):
            place.providers[0].set_faults(f"cut@{cut}")
            answer = await place.ask()
            check_contract(answer)
            assert answer.delivered == TEXT
            had = "".join(tokenize(THOUGHT)[:cut])
            assert thoughts_of(answer) == had + THOUGHT  # the new attempt reasons afresh
            assert place.providers[1].requests[-1].prefix == ""
            assert answer.metadata is not None
            told = [one.get("reasoning_chars") for one in answer.metadata["attempts"]]
            assert told == [len(had), len(THOUGHT)]
            assert answer.metadata["superseded"] == []


async def test_reasoning_alone_does_not_forbid_the_same_target_again() -> None:
    async with bench(THINKS, route={"retry": {"same_target": 1, "max_wait_s": 2}}) as place:
        place.providers[0].set_faults("error@3,status=503,times=1")
        answer = await place.ask()
        check_contract(answer)
        assert (answer.delivered, place.asked) == (TEXT, (2,))


TAGGED = f"<think>{THOUGHT}</think>\n\n{TEXT}"


@pytest.mark.parametrize("per_chunk", [1, 5])
async def test_think_tags_are_text_unless_the_route_says_otherwise(per_chunk: int) -> None:
    script = Script(text=TAGGED)
    async with bench(script, script) as place:
        answer = await place.ask()
        check_contract(answer)
        assert (answer.delivered, thoughts_of(answer)) == (TAGGED, "")
    async with bench(script, script, route={"think_tags": "reasoning"}) as place:
        for provider in place.providers:
            provider.manner.dialect = Dialect(tokens_per_chunk=per_chunk)
        answer = await place.ask(headers={"X-Router-Metadata": "always"})
        check_contract(answer)
        assert (answer.delivered, thoughts_of(answer)) == (TEXT, THOUGHT)
        assert answer.metadata is not None
        assert answer.metadata["attempts"][0]["reasoning_chars"] == len(THOUGHT)


async def test_a_cut_inside_think_tags_begins_the_attempt_afresh() -> None:
    script = Script(text=TAGGED)
    inside = len(tokenize(f"<think>{THOUGHT}"))
    async with bench(script, script, route={"think_tags": "reasoning"}) as place:
        for cut in range(0, inside, 3):
            place.providers[0].set_faults(f"cut@{cut}")
            answer = await place.ask()
            check_contract(answer)
            assert answer.delivered == TEXT
            assert place.providers[1].requests[-1].prefix == ""


async def test_a_cut_after_think_tags_goes_on() -> None:
    tagged = Script(text=TAGGED)
    async with bench(tagged, SAYS, route={"think_tags": "reasoning"}) as place:
        place.providers[0].set_faults(f"cut@{len(tokenize(TAGGED)) - 5}")
        answer = await place.ask()
        check_contract(answer)
        assert (answer.delivered, thoughts_of(answer)) == (TEXT, THOUGHT)
        assert place.providers[1].requests[-1].prefix


async def test_think_tags_of_several_choices_stay_apart() -> None:
    script = Script(text=TAGGED)
    async with bench(script, route={"think_tags": "reasoning"}) as place:
        answer = await place.ask(n=2)
        assert answer.error is None
        for choice in (0, 1):
            deltas = deltas_of(answer, choice=choice)
            assert "".join(delta.get("content") or "" for delta in deltas) == TEXT
            assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == THOUGHT


# --- usage ----------------------------------------------------------------------------------------


def usages(answer: Answer) -> list[dict[str, Any]]:
    return [one["usage"] for one in answer.chunks if one.get("usage")]


@pytest.mark.parametrize("shape", ["", "usage_every_chunk", "no_usage"])
async def test_usage_is_summed_and_given_once(shape: str) -> None:
    async with bench(SAYS, SAYS) as place:
        for provider in place.providers:
            provider.manner.dialect = parse_dialect(shape)
        place.providers[0].set_faults("cut@20")
        answer = await place.ask(stream_options={"include_usage": True})
        check_contract(answer)
        (usage,) = usages(answer)
        assert answer.metadata is not None
        attempts = answer.metadata["attempts"]
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            assert usage[name] == sum(one["usage"][name] for one in attempts)
        assert [one["usage_estimated"] for one in attempts] == {
            "": [True, False],
            "usage_every_chunk": [False, False],
            "no_usage": [True, True],
        }[shape]
        assert usages(await place.ask()) == []
        response = await place.post()
        assert response.json()["usage"] == usage
