"""The sixteen: what the primary does, and what a pass needs of whoever stands before it."""

from __future__ import annotations

from scenario_kit import (
    BOTH,
    FALLBACK,
    PRIMARY,
    REFUSES,
    Scenario,
    World,
    gaps_s,
    models,
    usage,
)

from router.simulate import Ended

OUTAGE_S = 60.0
REQUESTS = 20
EVERY_S = 5.0
"""S15: twenty requests, one every five seconds, so that the last eight come after the outage."""

SLACK_S = 0.5
"""What the machine may add to a wait in real time."""


async def rate_limited_once(world: World) -> None:
    """The header is honoured, and the primary is asked again."""
    answer, call = await world.ask()
    judge = world.judge
    judge.whole(answer)
    judge.conduct(world.asked(world.primary, within_s=1.5) <= 2, "2 attempts in 1.5 s")
    (gap,) = gaps_s(world.primary.requests) or [0.0]
    judge.conduct(2.0 <= gap <= 2.0 + SLACK_S, "Retry-After is honoured")
    judge.conduct(models(answer) == {PRIMARY}, "the primary answers")
    judge.figures["retried after"] = f"{gap:.2f} s"
    judge.figures["done"] = f"{call.ended_s:.1f} s"


async def rate_limited_for_ever(world: World) -> None:
    """Backoff, a bounded number of attempts, then the fallback."""
    answer, call = await world.ask()
    judge, asked = world.judge, world.asked(world.primary)
    judge.whole(answer)
    judge.conduct(world.asked(world.primary, within_s=3) <= 4, "4 attempts in 3 s")
    judge.conduct(asked <= 6, "6 attempts in all")
    judge.conduct(all(gap > 0.05 for gap in gaps_s(world.primary.requests)), "backoff")
    judge.conduct(models(answer) == {FALLBACK}, "the fallback answers")
    judge.figures["primary asked"] = str(asked)
    judge.figures["first text"] = f"{call.reads[0][0]:.2f} s"


async def failed_once(world: World) -> None:
    """Answered, by a second attempt at the same provider."""
    answer, call = await world.ask()
    world.judge.whole(answer)
    world.judge.conduct(world.asked(world.primary) == 2, "a second attempt at the primary")
    world.judge.conduct(models(answer) == {PRIMARY}, "the primary answers")
    world.judge.figures["first text"] = f"{call.reads[0][0]:.2f} s"


async def down_for_ever(world: World) -> None:
    """At most six attempts, then the fallback, whose name the answer bears."""
    answer, call = await world.ask()
    judge, asked = world.judge, world.asked(world.primary)
    judge.whole(answer)
    judge.conduct(asked <= 6, "6 primary attempts")
    judge.conduct(models(answer) == {FALLBACK}, "the answer names the fallback")
    judge.conduct(usage(answer).get("completion_tokens") == 60, "usage")
    judge.figures["primary asked"] = str(asked)
    judge.figures["model"] = ", ".join(sorted(models(answer)))
    judge.figures["first text"] = f"{call.reads[0][0]:.2f} s"


async def reset_before_headers(world: World) -> None:
    """Answered."""
    answer, call = await world.ask()
    world.judge.whole(answer)
    world.judge.figures["first text"] = f"{call.reads[0][0]:.2f} s"


async def silent(world: World) -> None:
    """Ended within the budget, and the silent one is not asked twice."""
    answer, call = await world.ask()
    world.judge.whole(answer)
    world.judge.conduct(world.asked(world.primary) == 1, "the silent one is asked once")
    world.judge.conduct((call.ended_s or 99) < 15, "within 15 s")
    world.judge.figures["done"] = f"{call.ended_s:.1f} s"


async def slow_first_token(world: World) -> None:
    """Answered within fifteen seconds, by a limit for the first token."""
    answer, call = await world.ask()
    world.judge.whole(answer)
    world.judge.conduct((call.ended_s or 99) < 15, "within 15 s")
    (slow,) = world.primary.requests
    world.judge.conduct(slow.ended is Ended.CLIENT_CLOSED, "the slow attempt is closed")
    world.judge.figures["done"] = f"{call.ended_s:.1f} s"


async def broken(world: World) -> None:
    """The whole answer, equal to the canonical text, by failing over: one request each."""
    answer, call = await world.ask()
    judge = world.judge
    judge.whole(answer)
    judge.conduct(world.asked(world.primary) == 1, "the primary is asked once")
    judge.conduct(models(answer) == {PRIMARY}, "one model for the whole answer")
    facts = answer.metadata or {"failovers": []}
    judge.conduct(len(facts["failovers"]) >= 1, "the failover is told at the end")
    judge.conduct(facts.get("superseded") == [], "nothing is sent twice")
    prefix = all(one["committed_chars"] for one in facts["failovers"])
    judge.conduct(prefix, "the fallback is handed a prefix")
    judge.figures["pause"] = f"{facts['failovers'][-1]['pause_ms']:.0f} ms"
    judge.figures["style"] = facts["failovers"][-1]["style"]
    judge.figures["done"] = f"{call.ended_s:.1f} s"


async def stalled(world: World) -> None:
    """The same within 45 s, and healthy afterwards."""
    await broken(world)
    answer, call = await world.ask()
    world.judge.whole(answer)
    world.judge.conduct(models(answer) == {PRIMARY}, "the primary is used again")
    world.judge.conduct((call.ended_s or 99) < 10, "healthy afterwards")
    (stalled, _) = world.primary.requests
    world.judge.conduct(stalled.ended is Ended.CLIENT_CLOSED, "the silent attempt is closed")


async def refused_prefix(world: World) -> None:
    """The same, although the fallback refuses an assistant prefix with a 400 of its own."""
    await broken(world)
    refused, taken = world.fallback.requests
    world.judge.conduct((refused.status, taken.status) == (400, 200), "asked otherwise once")


async def invalid_json(world: World) -> None:
    """The whole answer, and nothing of the broken event leaks."""
    answer, _ = await world.ask()
    world.judge.whole(answer)
    facts = answer.metadata or {"attempts": [{"fault": None}]}
    world.judge.figures["fault"] = str(facts["attempts"][0]["fault"])


async def no_done(world: World) -> None:
    """Finished at once, with usage."""
    answer, call = await world.ask()
    world.judge.whole(answer)
    last = world.primary.requests[0].ended_at or 0.0
    told = call.elapsed_s - (call.ended_s or 99)
    late = world.clock.now_s() - told - last
    world.judge.conduct(late < SLACK_S, "finished at once")
    world.judge.conduct(usage(answer).get("completion_tokens") == 60, "usage")
    world.judge.conduct(world.asked(world.fallback) == 0, "nobody else is asked")
    world.judge.figures["end"] = f"{1000 * late:.0f} ms after the provider's"


async def too_long(world: World) -> None:
    """The primary is asked once; a fallback that is no larger is not asked at all."""
    answer, _ = await world.ask()
    world.judge.refused(answer, code="context_length_exceeded")
    world.judge.conduct(world.asked(world.primary) == 1, "the primary is asked once")
    world.judge.conduct(world.asked(world.fallback) == 0, "no other of the same size is asked")
    world.judge.figures["status"] = str(answer.status)


async def forbidden_content(world: World) -> None:
    """The primary is asked once, and its reason comes back."""
    answer, _ = await world.ask()
    world.judge.refused(answer, code="content_policy_violation")
    world.judge.conduct(world.asked(world.primary) == 1, "the primary is asked once")
    world.judge.conduct(world.asked(world.fallback) == 0, "it is not routed around")
    world.judge.figures["status"] = str(answer.status)


async def outage(world: World) -> None:
    """All are answered, few probes meanwhile, and the primary is used again soon."""
    judge, clock = world.judge, world.clock
    began_s = clock.now_s()
    used_again_s = None
    for number in range(REQUESTS):
        await clock.sleep(max(0.0, began_s + number * EVERY_S - clock.now_s()))
        asked_s = clock.now_s() - began_s
        answer, _ = await world.ask()
        judge.whole(answer)
        if used_again_s is None and models(answer) == {PRIMARY}:
            used_again_s = asked_s
    late_s = 99.0 if used_again_s is None else used_again_s - OUTAGE_S
    meanwhile = sum(request.status == 503 for request in world.primary.requests)
    judge.conduct(0 <= late_s <= 30, "used again within 30 s")
    judge.conduct(meanwhile <= 8, "few probes")
    judge.figures["answered"] = f"{REQUESTS}"
    judge.figures["used again after"] = f"{late_s:.0f} s"
    judge.figures["asked while down"] = f"{meanwhile}"


SCENARIOS = (
    Scenario(
        id="S01",
        fault="429, Retry-After: 2, once",
        faults="rate_limit,retry_after=2,times=1",
        play=rate_limited_once,
    ),
    Scenario(id="S02", fault="429 for ever", faults="rate_limit", play=rate_limited_for_ever),
    Scenario(id="S03", fault="500 once", faults="status=500,times=1", play=failed_once),
    Scenario(id="S04", fault="503 for ever", faults="status=503", play=down_for_ever),
    Scenario(
        id="S05", fault="reset before headers", faults="reset,times=1", play=reset_before_headers
    ),
    Scenario(id="S06", fault="accepts, never answers", faults="silent", play=silent),
    Scenario(
        id="S07", fault="first token after 20 s", faults="first_token_s=20", play=slow_first_token
    ),
    Scenario(id="S08", fault="cut after 40 of 60", faults="cut@40", play=broken, variants=BOTH),
    Scenario(
        id="S09",
        fault="30 s of silence after 20",
        faults="stall@20,for_s=30,times=1",
        play=stalled,
        variants=BOTH,
    ),
    Scenario(id="S10", fault="tenth event is no JSON", faults="malformed@8", play=invalid_json),
    Scenario(id="S11", fault="no [DONE]", faults="no_done", play=no_done),
    Scenario(
        id="S12",
        fault="400 context_length_exceeded",
        faults="context_length",
        play=too_long,
        windows=(4096, 4096),
    ),
    Scenario(
        id="S13",
        fault="400 content_policy_violation",
        faults="content_policy",
        play=forbidden_content,
    ),
    Scenario(
        id="S14",
        fault="S08, prefix refused with 400",
        faults="cut@40",
        play=refused_prefix,
        variants=REFUSES,
    ),
    Scenario(
        id="S15",
        fault="down for 60 s, 20 requests",
        faults=f"status=503,until_s={OUTAGE_S:.0f}",
        play=outage,
    ),
    Scenario(id="S16", fault="503: who answered?", faults="status=503", play=down_for_ever),
)
"""All of them."""
