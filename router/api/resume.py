"""A client that comes back: `X-Router-Resume` and `X-Router-Received` on the same POST.

Every way in which that cannot be done has an error of its own; none is answered by quietly starting
anew, which would double the client's text.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import NoReturn

from router.core.resumption import delivered_at, plan_resumption
from router.engine.resume import Resumed
from router.errors import (
    RecordConflict,
    RecordCorrupt,
    RecordNotFound,
    RecordUnavailable,
    RequestError,
)
from router.store.base import Record, RecordStore

RESUME = "x-router-resume"
RECEIVED = "x-router-received"
LAST_EVENT_ID = "last-event-id"

MAX_FRAGMENT_CHARS = 100_000
"""More than any boundary leaves uncommitted: a client that claims to have so much beyond the
committed text is mistaken about the stream."""


async def take_over(
    headers: Mapping[str, str], store: RecordStore, *, digest: str, owner: str, kind: str
) -> Resumed | None:
    """Become the writer of the stream that a client comes back for.

    Args:
        headers: of the request, names in lower case.
        store: the records.
        digest: hex digest of the request's body.
        owner: digest of the API key that asks.
        kind: "text" or "json", as this request would be answered.

    Returns:
        None if the request asks for nothing of the kind.

    Raises:
        RequestError: why it cannot be resumed.
    """
    wanted = _wanted(headers)
    if wanted is None:
        return None
    stream_id, received = wanted
    try:
        record = await store.load(stream_id)
        _check(record, digest=digest, owner=owner, kind=kind, received=received)
        record, writer = await store.takeover(stream_id, expected_epoch=record.epoch)
    except RecordNotFound:
        _refuse(
            404,
            "resume_unknown",
            "There is no such stream to resume: it was completed, its time to be resumed is over, "
            "or it was never begun. Ask again without x-router-resume.",
        )
    except RecordConflict:
        _refuse(409, "resume_conflict", "Another request is resuming this stream already.")
    except RecordCorrupt as error:
        _refuse(409, "resume_corrupt", f"The record of this stream cannot be read: {error}.")
    except RecordUnavailable as error:
        _refuse(503, "resume_unavailable", f"The record cannot be asked for now: {error}.")
    plan = plan_resumption(record.text, _superseded(record), received)
    return Resumed(record=record, writer=writer, plan=plan)


def _wanted(headers: Mapping[str, str]) -> tuple[str, int] | None:
    """Stream and offset, from our own headers or from a browser's `Last-Event-ID`."""
    stream_id, received = headers.get(RESUME), headers.get(RECEIVED)
    if stream_id is None:
        stream_id, _, received = headers.get(LAST_EVENT_ID, "").rpartition(":")
        if not stream_id:
            return None
    digits = received or ""
    if not (digits.isascii() and digits.isdigit() and len(digits) < 16):
        _refuse(
            400,
            "resume_offset",
            f"{RESUME} needs {RECEIVED}: the number of characters of text that were received.",
            param=RECEIVED,
        )
    return stream_id, int(digits)


def _check(record: Record, *, digest: str, owner: str, kind: str, received: int) -> None:
    if not hmac.compare_digest(record.head.owner, owner):
        _refuse(403, "resume_wrong_key", "This stream was begun with another API key.")
    if not hmac.compare_digest(record.head.request_digest, digest):
        _refuse(
            409,
            "resume_wrong_body",
            "This stream was begun with another request body; resume with the very same bytes.",
        )
    if record.head.kind != kind:
        _refuse(409, "resume_wrong_body", "This stream was begun as another kind of answer.")
    if record.meta.get("tool_call"):
        _refuse(
            409,
            "tool_call_interrupted",
            "A tool call had been delivered on this stream, and the tool may have run: it cannot "
            "be resumed.",
        )
    most = delivered_at(len(record.text), _superseded(record)) + MAX_FRAGMENT_CHARS
    if received > most and not record.stale:
        _refuse(
            400,
            "resume_offset",
            f"{RECEIVED} is {received}, which is beyond anything this stream has sent.",
            param=RECEIVED,
        )


def _superseded(record: Record) -> list[tuple[int, int]]:
    return [(int(start), int(end)) for start, end in record.meta.get("superseded", [])]


def _refuse(status: int, code: str, message: str, *, param: str = RESUME) -> NoReturn:
    raise RequestError(
        message,
        status=status,
        code=code,
        param=param,
        headers=(("x-should-retry", "false"),),
    )
