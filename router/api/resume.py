"""A client that comes back: `X-Router-Resume` and its companions on the same POST.

Every way in which that cannot be done has an error of its own; none is answered by quietly starting
anew, which would double the client's text.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from router.core.resumption import delivered_at, plan_resumption
from router.engine.engine import STREAM_ID_BYTES
from router.engine.resume import Facts, Resumed, facts_of
from router.errors import (
    RecordConflict,
    RecordCorrupt,
    RecordNotFound,
    RecordNotKept,
    RecordNotYet,
    RecordUnavailable,
    RequestError,
)
from router.store.base import Record, RecordStore

RESUME = "x-router-resume"
RECEIVED = "x-router-received"
PART = "x-router-part"
LAST_EVENT_ID = "last-event-id"

MAX_FRAGMENT_CHARS = 100_000
"""More than any boundary leaves uncommitted: a client that claims to have so much beyond the
committed text is mistaken about the stream."""

MAX_ID_CHARS = 64
"""Of a stream's id in the log: it is a client's word."""

MAX_DIGITS = 15
"""Of a count in a header."""

MAX_QUOTED_CHARS = 40
"""Of a header's value in an error."""

_ID_CHARS = STREAM_ID_BYTES * 4 // 3
_ID_PREFIXES = ("chatcmpl-", "msg_", "req_")
"""Before the stream's id in an answer's `id` and in `request-id`, which clients have at hand."""

_log = logging.getLogger("router.api")

NOT_YET_S = (0.05, 0.15, 0.3)
"""Waits for a record that is not there, in seconds. Records are written behind the streams' backs,
so a client whose connection broke may be back before its stream is on record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who comes back, and with what.

    Args:
        digest: hex digest of the request's body.
        owner: digest of the API key.
        kind: "text" or "json", as the request would be answered.
        stream: a stream is wanted; a blocking answer is given whole, whatever was received.
        several: several choices are wanted: a record holds but one.
        continuable: some target of the route can go on from text.
    """

    digest: str
    owner: str
    kind: str
    stream: bool
    several: bool
    continuable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a client says of the stream that it comes back for.

    Args:
        stream_id: which.
        received: characters it has.
        part: of the last response that reached it, or None if it does not say.
    """

    stream_id: str
    received: int
    part: str | None


async def take_over(
    headers: Mapping[str, str],
    store: RecordStore,
    asker: Asker,
    *,
    sleep: Callable[[float], Awaitable[None]],
) -> Resumed | None:
    """Become the writer of the stream that a client comes back for.

    Args:
        headers: of the request, names in lower case.
        store: the records.
        asker: who comes back.
        sleep: waits so many seconds.

    Returns:
        None if the request asks for nothing of the kind.

    Raises:
        RequestError: why it cannot be resumed.
    """
    wanted = _wanted(headers, blocking=not asker.stream)
    if wanted is None:
        return None
    try:
        record = await _load(store, wanted.stream_id, sleep)
        _check(record, facts_of(record), asker, wanted)
        before = record.epoch
        record, writer = await store.takeover(wanted.stream_id, expected_epoch=before)
        facts = facts_of(record)
        # The one before us may have gone on since we looked, perhaps to a tool call.
        _check(record, facts, asker, wanted)
    except RecordNotFound:
        _refuse(
            404,
            "resume_unknown",
            "There is no such stream to resume: it was completed, its time to be resumed is over, "
            "its record went with a router that kept it in memory, or it was never begun. "
            "Ask again without x-router-resume.",
        )
    except RecordNotKept:
        _refuse(
            409,
            "resume_not_kept",
            "This router keeps no text of any answer, so no stream of it can be resumed. Ask again "
            "without x-router-resume.",
        )
    except RecordConflict:
        _refuse(409, "resume_conflict", "Another request is resuming this stream already.")
    except RecordCorrupt as error:
        _refuse(409, "resume_corrupt", f"The record of this stream cannot be read: {error}.")
    except RecordNotYet:
        _refuse(
            503,
            "resume_unavailable",
            "The record's store was away until a moment ago, and may be told of this stream yet. "
            "Ask again in a moment.",
        )
    except RecordUnavailable as error:
        # Why is the owner's to know: it names the store's host.
        _log.warning("stream %r cannot be resumed now: %s", wanted.stream_id[:MAX_ID_CHARS], error)
        _refuse(
            503,
            "resume_unavailable",
            "The record's store does not answer just now. Ask again in a moment.",
        )
    known = facts.known(wanted.received, part=wanted.part, epoch=before)
    text = record.text + facts.gap
    plan = plan_resumption(text, facts.superseded, wanted.received, known=known)
    return Resumed(record=record, facts=facts, writer=writer, plan=plan)


async def _load(
    store: RecordStore, stream_id: str, sleep: Callable[[float], Awaitable[None]]
) -> Record:
    for wait_s in NOT_YET_S:
        try:
            return await store.load(stream_id)
        except (RecordNotFound, RecordNotYet):
            await sleep(wait_s)
    return await store.load(stream_id)


def _wanted(headers: Mapping[str, str], *, blocking: bool) -> _Wanted | None:
    """Stream and offset, from our own headers or from a browser's `Last-Event-ID`."""
    stream_id, received, part = (headers.get(name) for name in (RESUME, RECEIVED, PART))
    if stream_id is None:
        parts = headers.get(LAST_EVENT_ID, "").split(":")
        if len(parts) != 3 or not parts[0]:
            return None  # an id of somebody else's
        stream_id, part, received = parts
    stream_id = _bare(stream_id)
    if blocking:  # it has nothing yet
        return _Wanted(stream_id=stream_id, received=0, part=None)
    return _Wanted(stream_id=stream_id, received=_count(received or ""), part=part)


def _bare(stream_id: str) -> str:
    """Without what stands before it elsewhere. An id of our length is whole, however it begins."""
    for prefix in _ID_PREFIXES:
        if stream_id.startswith(prefix) and len(stream_id) == len(prefix) + _ID_CHARS:
            return stream_id.removeprefix(prefix)
    return stream_id


def _count(digits: str) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS):
        wrong = (
            f"{RECEIVED} is {digits[:MAX_QUOTED_CHARS]!r}, which is no number of up to "
            f"{MAX_DIGITS} digits"
            if digits
            else f"{RESUME} needs {RECEIVED}"
        )
        _refuse(
            400,
            "resume_offset",
            f"{wrong}: send how many characters of text came.",
            param=RECEIVED,
        )
    return int(digits)


def _check(record: Record, facts: Facts, asker: Asker, wanted: _Wanted) -> None:
    if not _same(record.head.owner, asker.owner):
        _refuse(403, "resume_wrong_key", "This stream was begun with another API key.")
    if not _same(record.head.request_digest, asker.digest):
        _refuse(
            409,
            "resume_wrong_body",
            "This stream was begun with another request body; resume with the very same bytes.",
        )
    if record.head.kind != asker.kind:
        _refuse(409, "resume_wrong_body", "This stream was begun as another kind of answer.")
    if facts.tool_call:
        _refuse(
            409,
            "tool_call_interrupted",
            "A tool call had been delivered on this stream, and the tool may have run: it cannot "
            "be resumed.",
        )
    if facts.sealed or asker.several:
        _refuse(
            409,
            "resume_impossible",
            "What had been delivered on this stream (a refusal, audio, several choices or log "
            "probabilities) cannot be taken up by another call: it cannot be resumed.",
        )
    if record.text and not (asker.continuable or facts.finish):
        _refuse(
            409,
            "resume_impossible",
            "No target of this route can go on from text that is there already.",
        )
    _check_offset(record, facts, wanted.received)


def _check_offset(record: Record, facts: Facts, received: int) -> None:
    most = max(delivered_at(len(record.text), facts.superseded), facts.start)
    if received > most + MAX_FRAGMENT_CHARS and not record.stale:
        _refuse(
            400,
            "resume_offset",
            f"{RECEIVED} is {received}, which is beyond anything this stream has sent.",
            param=RECEIVED,
        )


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _refuse(status: int, code: str, message: str, *, param: str = RESUME) -> NoReturn:
    raise RequestError(
        message,
        status=status,
        code=code,
        param=param,
        headers=(("x-should-retry", "false"),),
    )
