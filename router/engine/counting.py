"""How many tokens a request has, asked of whichever target can count."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import MappingProxyType
from typing import Final

from router.core.faults import Fault, FaultKind
from router.core.request import ChatRequest
from router.engine.clock import Clock, Expired, Watch
from router.engine.route import Route, Target
from router.engine.upstream import DECODING_ERRORS, TRANSPORT_ERRORS, body_of, words_of
from router.errors import MalformedStream
from router.providers.base import UpstreamRequest

MAX_COUNT_BODY_BYTES: Final = 65_536
"""Bound on a count or on an error in its place."""


async def count_tokens(
    request: ChatRequest, route: Route, clock: Clock
) -> int | tuple[tuple[Target, Fault], ...]:
    """Ask the targets in their order; each within its limits for a connection and a first output.

    Args:
        request: what is to be counted.
        route: whose targets.
        clock: where time comes from.

    Returns:
        The number of tokens; or, where none was to be had, why of each that was asked. Empty if no
        target counts.
    """
    failed: list[tuple[Target, Fault]] = []
    for target in route.targets:
        asked = target.provider.count_request(request)
        if asked is None:
            continue
        outcome = await _ask(target, asked, clock)
        if isinstance(outcome, int):
            return outcome
        failed.append((target, outcome))
    return tuple(failed)


async def _ask(target: Target, asked: UpstreamRequest, clock: Clock) -> int | Fault:
    watch = Watch(clock)
    watch.due_s = clock.now_s() + target.first_output_s
    try:
        with watch:
            response = await target.upstream.send(asked, connect_s=target.connect_s)
            try:
                body = await _whole(body_of(response))
            finally:
                await response.aclose()
        if response.status_code // 100 == 2:
            return target.provider.read_count(body)
    except Expired:
        said = f"no answer for {target.first_output_s:g} s"
        return Fault(kind=FaultKind.FIRST_OUTPUT_TIMEOUT, message=said)
    except DECODING_ERRORS as error:
        return Fault(kind=FaultKind.MALFORMED, message=f"the body cannot be decoded: {error}")
    except TRANSPORT_ERRORS as error:
        return Fault(kind=FaultKind.CONNECT, message=words_of(error))
    except MalformedStream as error:
        return Fault(kind=FaultKind.MALFORMED, message=str(error))
    finally:
        watch.stop()
    headers = MappingProxyType({k.lower(): v for k, v in response.headers.items()})
    return target.provider.classify(response.status_code, headers, body)


async def _whole(stream: AsyncIterator[bytes]) -> bytes:
    body = bytearray()
    async for data in stream:
        body += data
        if len(body) > MAX_COUNT_BODY_BYTES:
            break
    return bytes(body)
