"""How to fail: every misdeed is one function in one of five tables, by where it strikes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from router.simulate.answer import Answer
from router.simulate.faults import FaultSpec, Misdeed
from router.simulate.records import Ended
from router.simulate.scene import Scene

JSON_TYPE: Final = "application/json"
_PAGE = (
    b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head><body>Busy.</body></html>\n"
)
_BIG_WRITE_BYTES = 65_536
_WRONG_BY_BYTES = 1_000


def place(fault: FaultSpec, answer: Answer) -> int:
    """After how many pieces a misdeed of the table `MIDST` strikes."""
    if fault.at is not None:
        return fault.at
    return 0 if fault.kind in AT_START else len(answer.pieces)


async def silence(for_s: float | None, scene: Scene) -> None:
    """Say nothing for so long, or until cancelled."""
    if for_s is None:
        await asyncio.get_running_loop().create_future()
    else:
        await scene.sleep(for_s)


async def reject(scene: Scene, fault: FaultSpec) -> Ended:
    """An error response."""
    rejection = scene.wire.rejection(fault)
    extra, body = [*rejection.headers], rejection.body
    if fault.header:
        name, _, value = fault.header.partition(":")
        extra.append((name.strip(), value.strip()))
    await scene.head(rejection.status, JSON_TYPE, extra=tuple(extra), length=len(body))
    return await scene.end(body, Ended.REJECTED)


async def _refuse(scene: Scene, fault: FaultSpec) -> Ended:
    scene.go_down(fault.for_s)
    return scene.rst()


async def _reset(scene: Scene, _fault: FaultSpec) -> Ended:
    return scene.rst()


async def _close(scene: Scene, _fault: FaultSpec) -> Ended:
    return scene.fin()


async def _silent(scene: Scene, fault: FaultSpec) -> Ended:
    await silence(fault.for_s, scene)
    return scene.fin()


async def _slow_header(scene: Scene, fault: FaultSpec) -> Ended:
    await scene.outlet.raw(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        await scene.sleep(fault.every_s)
        await scene.outlet.raw(b"z")


async def _redirect(scene: Scene, fault: FaultSpec) -> Ended:
    location = fault.message or "/moved/v1/chat"
    await scene.head(307, "text/plain", extra=(("Location", location),), length=0)
    return await scene.end(b"", Ended.REJECTED)


async def _html(scene: Scene, _fault: FaultSpec) -> Ended:
    await scene.head(200, "text/html; charset=utf-8", length=len(_PAGE))
    return await scene.end(_PAGE, Ended.FAILED)


async def _done_only(scene: Scene, _fault: FaultSpec) -> Ended:
    await scene.head(200, scene.encoder.content_type)
    return await scene.end(scene.encoder.done(), Ended.FAILED)


async def _bad_length(scene: Scene, fault: FaultSpec) -> Ended:
    """The whole stream at once, under a length that is wrong."""
    encoder, pieces = scene.encoder, scene.answer.pieces
    body = encoder.opening() + b"".join(encoder.pieces((piece,)) for piece in pieces)
    body += encoder.ending(scene.answer, ()) + encoder.done()
    for token in range(len(pieces)):
        await scene.due(token)
    length = max(0, len(body) + (fault.delta or _WRONG_BY_BYTES))
    await scene.head(200, encoder.content_type, length=length)
    await scene.send(body)
    scene.record.sent(len(pieces))
    return scene.fin()


async def _cut(scene: Scene, _fault: FaultSpec, _at: int) -> Ended:
    return scene.fin()


async def _rst(scene: Scene, _fault: FaultSpec, _at: int) -> Ended:
    return scene.rst()


async def _stall(scene: Scene, fault: FaultSpec, _at: int) -> int:
    await silence(fault.for_s, scene)
    return 0


async def _keepalive(scene: Scene, fault: FaultSpec, _at: int) -> Ended:
    while True:
        await scene.send(scene.encoder.alive(fault.form))
        await scene.sleep(fault.every_s)


async def _error(scene: Scene, fault: FaultSpec, _at: int) -> Ended:
    return await scene.end(scene.encoder.error(fault), Ended.FAILED)


async def _error_then_done(scene: Scene, fault: FaultSpec, _at: int) -> Ended:
    await scene.send(scene.encoder.error(fault))
    return await scene.end(scene.encoder.done(), Ended.FAILED)


async def _malformed(scene: Scene, _fault: FaultSpec, at: int) -> int:
    pieces = scene.answer.pieces
    await scene.send(scene.encoder.broken(pieces[at] if at < len(pieces) else None))
    return 1


async def _big_line(scene: Scene, fault: FaultSpec, _at: int) -> Ended:
    await scene.send(b"data: ")
    left = fault.size_bytes
    while left > 0:
        await scene.send(b"x" * min(left, _BIG_WRITE_BYTES))
        left -= _BIG_WRITE_BYTES
    return await scene.end(b"", Ended.FAILED)


async def _no_finish(scene: Scene, _fault: FaultSpec, _at: int) -> Ended:
    return await scene.end(b"", Ended.FAILED)


async def _done_early(scene: Scene, _fault: FaultSpec, _at: int) -> Ended:
    return await scene.end(scene.encoder.done(), Ended.FAILED)


async def _finish_error(scene: Scene, fault: FaultSpec, _at: int) -> Ended:
    await scene.send(scene.encoder.finish_error(fault.reason))
    return await scene.end(scene.encoder.done(), Ended.FAILED)


async def _no_done(scene: Scene, _fault: FaultSpec) -> Ended:
    return await scene.end(b"", Ended.COMPLETED)


async def _cut_after_finish(scene: Scene, _fault: FaultSpec) -> Ended:
    return scene.fin()


async def _after_done_forever(scene: Scene, fault: FaultSpec) -> Ended:
    await scene.send(scene.encoder.done())
    if fault.form == "silence":
        await silence(None, scene)
    while True:
        await scene.send(scene.encoder.alive("comment"))
        await scene.sleep(fault.every_s)


async def _end_clean(scene: Scene) -> Ended:
    await scene.outlet.terminate()
    return Ended.FAILED


async def _end_fin(scene: Scene) -> Ended:
    return scene.fin()


async def _end_rst(scene: Scene) -> Ended:
    return scene.rst()


async def _end_stall(scene: Scene) -> Ended:
    await silence(None, scene)
    return scene.fin()


def _empty(answer: Answer, _fault: FaultSpec) -> Answer:
    return replace(answer, pieces=(), reason="stop", matched="")


def _filtered(answer: Answer, fault: FaultSpec) -> Answer:
    return replace(
        answer, pieces=answer.pieces[: fault.at or 0], reason="content_filter", matched=""
    )


ALTERED: Final[Mapping[Misdeed, Callable[[Answer, FaultSpec], Answer]]] = {
    Misdeed.EMPTY: _empty,
    Misdeed.FILTERED: _filtered,
}
"""Misdeeds of the model rather than of the server: what is said is another answer."""

Before: TypeAlias = Callable[[Scene, FaultSpec], Awaitable[Ended]]
Midst: TypeAlias = Callable[[Scene, FaultSpec, int], Awaitable[Ended | int]]

BEFORE: Final[Mapping[Misdeed, Before]] = {
    Misdeed.REFUSE: _refuse,
    Misdeed.RESET: _reset,
    Misdeed.CLOSE: _close,
    Misdeed.SILENT: _silent,
    Misdeed.SLOW_HEADER: _slow_header,
    Misdeed.STATUS: reject,
    Misdeed.REDIRECT: _redirect,
    Misdeed.HTML: _html,
    Misdeed.DONE_ONLY: _done_only,
    Misdeed.BAD_LENGTH: _bad_length,
}
"""Misdeeds in place of a stream."""

MIDST: Final[Mapping[Misdeed, Midst]] = {
    Misdeed.CUT: _cut,
    Misdeed.RST: _rst,
    Misdeed.STALL: _stall,
    Misdeed.ROLE_THEN_SILENCE: _stall,
    Misdeed.KEEPALIVE_FOREVER: _keepalive,
    Misdeed.ERROR: _error,
    Misdeed.ERROR_THEN_DONE: _error_then_done,
    Misdeed.MALFORMED: _malformed,
    Misdeed.BIG_LINE: _big_line,
    Misdeed.NO_FINISH: _no_finish,
    Misdeed.DONE_EARLY: _done_early,
    Misdeed.FINISH_ERROR: _finish_error,
}
"""Misdeeds after N pieces: they end the stream, swallow some pieces, or only take time."""

END: Final[Mapping[Misdeed, Before]] = {
    Misdeed.NO_DONE: _no_done,
    Misdeed.CUT_AFTER_FINISH: _cut_after_finish,
    Misdeed.AFTER_DONE_FOREVER: _after_done_forever,
}
"""Misdeeds after the finish."""

AT_START: Final = frozenset(
    {Misdeed.KEEPALIVE_FOREVER, Misdeed.ROLE_THEN_SILENCE, Misdeed.MALFORMED, Misdeed.BIG_LINE}
)
"""Of those with a place, the ones that strike before the first piece unless told otherwise."""

AT_LIMIT: Final[Mapping[str, Callable[[Scene], Awaitable[Ended]]]] = {
    "end": _end_clean,
    "fin": _end_fin,
    "rst": _end_rst,
    "stall": _end_stall,
}
"""What comes after the last byte that is sent."""
