"""What the engine does around a seam: the record, the requests it makes, and when it makes none."""

from __future__ import annotations

from typing import Any

import pytest
from support.continuity import MESSAGES, house
from support.reading import check_contract
from support.texts import OTHER, seeded

from router.core.events import ToolCall
from router.engine.observe import AttemptEnded, AttemptStarted, Committed, Detail, Joined
from router.simulate import Conduct, Script, tokenize

TEXT = next(one.text for one in seeded(seed=9, chars=260) if one.name == "prose")
TOKENS = len(tokenize(TEXT))
CALL = ToolCall(index=0, id="call_1", name="pay", arguments='{"amount": 36}')


class Log(list[Detail]):
    """An observer."""

    def __call__(self, detail: Detail) -> None:
        self.append(detail)

    def of(self, kind: type[Any]) -> list[Any]:
        return [detail for detail in self if isinstance(detail, kind)]


# -- the record ------------------------------------------------------------------------------------


@pytest.mark.parametrize("behaviour", ["continue", "echo", "differ", "preamble"])
async def test_commits_follow_one_another_and_are_a_prefix_of_the_answer(behaviour: str) -> None:
    log = Log()
    fallback = Conduct(prefix=behaviour)
    async with house(TEXT, fallback, observers=[log]) as place:
        for cut in range(0, TOKENS + 1, 3):
            log.clear()
            place.providers[0].set_faults(f"cut@{cut}")
            answer = await place.read()
            check_contract(answer)
            record = ""
            for one in log.of(Committed):
                record += one.delta
                assert one.committed_chars == len(record)
                assert one.delta.strip()
                assert not one.delta[-1].isspace()
            assert answer.canonical.startswith(record)
            # All but the last sentence, which nothing has followed yet.
            assert len(answer.canonical) - len(record) < 160


async def test_the_prefix_that_is_sent_is_the_record() -> None:
    log = Log()
    async with house(TEXT, Conduct(), observers=[log]) as place:
        for cut in range(1, TOKENS, 4):
            log.clear()
            place.providers[0].set_faults(f"cut@{cut}")
            await place.read()
            ended = next(at for at, one in enumerate(log) if isinstance(one, AttemptEnded))
            before = "".join(one.delta for one in log[:ended] if isinstance(one, Committed))
            sent = place.providers[1].requests[-1]
            assert sent.prefix == before
            assert (sent.style is None) == (before == "")


async def test_a_seam_is_told_once_with_what_was_dropped_and_replaced() -> None:
    log = Log()
    cut = TOKENS // 2
    async with house(TEXT, Conduct(prefix="echo"), observers=[log]) as place:
        place.providers[0].set_faults(f"cut@{cut}")
        await place.read()
        (joined,) = log.of(Joined)
        committed = joined.report.committed_chars
        assert joined.dropped == ("echo",)
        assert joined.superseded_chars == 0
        assert joined.fragment_chars == len("".join(tokenize(TEXT)[:cut])) - committed
        assert joined.report.pause_ms >= 0

        log.clear()
        place.providers[1].manner.conduct = Conduct(prefix="differ")
        place.providers[1].manner.script = Script(text=TEXT, other_text=OTHER)
        answer = await place.read()
        (joined,) = log.of(Joined)
        assert joined.dropped == ()
        assert answer.metadata is not None
        ((start, end),) = answer.metadata["superseded"]
        assert joined.superseded_chars == end - start


# -- the requests ----------------------------------------------------------------------------------


async def test_the_clients_token_budget_is_reduced_by_what_is_committed() -> None:
    async with house(TEXT, Conduct()) as place:
        place.providers[0].set_faults(f"cut@{TOKENS // 2}")
        answer = await place.read(max_tokens=500, temperature=0.5)
        check_contract(answer)
        assert answer.delivered == TEXT
        first, second = (one.requests[-1] for one in place.providers)
        assert first.body["max_tokens"] == 500
        spent = 500 - second.body["max_tokens"]
        assert 0 < spent <= len(second.prefix)
        assert second.body["temperature"] == 0.5
        assert second.body["messages"][: len(MESSAGES)] == MESSAGES


async def test_a_new_attempt_reasons_afresh_and_reasoning_is_no_output() -> None:
    thinking = "First I think about it for a while."
    script = Script(text=TEXT, reasoning=thinking)
    thoughts = len(tokenize(thinking))
    async with house(TEXT, script, primary=script) as place:
        place.providers[0].set_faults(f"cut@{thoughts - 2}")
        answer = await place.read()
        check_contract(answer)
        assert answer.delivered == TEXT
        assert place.providers[1].requests[-1].style is None
        place.providers[0].set_faults(f"cut@{thoughts + TOKENS // 2}")
        answer = await place.read()
        check_contract(answer)
        assert answer.delivered == TEXT
        assert place.providers[1].requests[-1].prefix


async def test_attempts_are_numbered_and_named_as_they_are_made() -> None:
    log = Log()
    async with house(TEXT, Conduct(), Conduct(), observers=[log]) as place:
        place.providers[0].set_faults(f"cut@{TOKENS // 2}")
        place.providers[1].set_faults("cut@1")
        answer = await place.read()
        assert answer.delivered == TEXT
        started = [(one.number, one.target[:2], one.style) for one in log.of(AttemptStarted)]
        assert started == [(1, "p1", ""), (2, "p2", "instruct"), (3, "p3", "instruct")]


# -- what forbids a second request -----------------------------------------------------------------


@pytest.mark.parametrize("cut", range(1, len(tokenize(CALL.arguments)) + 2))
async def test_no_second_request_once_a_part_of_a_tool_call_is_delivered(cut: int) -> None:
    script = Script(text="", tool_calls=(CALL,))
    async with house("", script, primary=script) as place:
        place.providers[0].set_faults(f"cut@{cut}")
        answer = await place.read(tools=[{"type": "function", "function": {"name": "pay"}}])
        assert answer.error is not None
        assert answer.error["code"] == "tool_call_interrupted"
        assert answer.finish_reasons == []
        assert answer.done == 0
        assert (place.asked(0), place.asked(1)) == (1, 0)


async def test_a_cut_before_a_tool_call_is_gone_on_from() -> None:
    script = Script(text="I will pay. Wait", tool_calls=(CALL,))
    async with house("", script, primary=script) as place:
        for cut in range(len(tokenize(script.text)) + 1):
            place.providers[0].set_faults(f"cut@{cut}")
            answer = await place.read()
            assert answer.error is None
            assert answer.delivered == script.text
            assert answer.finish_reasons == ["tool_calls"]
            calls = [
                call
                for chunk in answer.chunks
                for choice in chunk["choices"]
                for call in choice["delta"].get("tool_calls", [])
            ]
            assert "".join(one["function"].get("arguments", "") for one in calls) == CALL.arguments
            assert [one["id"] for one in calls if one.get("id")] == [CALL.id]


@pytest.mark.parametrize("fields", [{"n": 2}, {"logprobs": True}])
async def test_what_no_second_model_can_take_up_is_an_error(fields: dict[str, Any]) -> None:
    async with house(TEXT, Conduct()) as place:
        place.providers[0].set_faults("cut@20")
        answer = await place.read(**fields)
        assert answer.error is not None
        assert answer.error["code"] == "stream_interrupted"
        assert answer.done == 0
        assert place.asked(1) == 0


# -- a finish is an end ----------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["cut_after_finish", "no_done"])
async def test_a_finish_that_was_seen_is_an_end(fault: str) -> None:
    async with house(TEXT, Conduct()) as place:
        place.providers[0].set_faults(fault)
        answer = await place.read()
        check_contract(answer)
        assert answer.delivered == TEXT
        assert answer.metadata is None
        assert place.asked(1) == 0


@pytest.mark.parametrize("fault", ["cut_after_finish", "no_done"])
async def test_so_is_one_after_a_failover(fault: str) -> None:
    async with house(TEXT, Conduct(prefix="echo")) as place:
        place.providers[0].set_faults(f"cut@{TOKENS // 2}")
        place.providers[1].set_faults(fault)
        answer = await place.read()
        check_contract(answer)
        assert answer.delivered == TEXT
        assert (place.asked(0), place.asked(1)) == (1, 1)
