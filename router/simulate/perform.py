"""Plays one answer into one outlet, piece by piece, with the ordered misdeed in its place."""

from __future__ import annotations

from dataclasses import replace

from router.core.events import ToolCall
from router.simulate.answer import Piece
from router.simulate.faults import FaultSpec, Misdeed
from router.simulate.misdeeds import (
    ALTERED,
    AT_LIMIT,
    BEFORE,
    END,
    JSON_TYPE,
    MIDST,
    place,
    reject,
)
from router.simulate.records import Ended
from router.simulate.scene import RawAnswer, Scene
from router.simulate.transport import BodyLimit


async def perform(scene: Scene) -> Ended:
    """Play it.

    Returns:
        How it ended. A scene that falls silent for good ends only by cancellation.
    """
    try:
        return await _play(scene)
    except BodyLimit:
        return await AT_LIMIT[(scene.fault.form if scene.fault else "") or "fin"](scene)


async def _play(scene: Scene) -> Ended:
    fault = scene.fault
    if fault is not None and fault.kind in BEFORE:
        return await BEFORE[fault.kind](scene, fault)
    if scene.answer.refused is not None:
        refusal = FaultSpec(kind=Misdeed.STATUS, status=400, message=scene.answer.refused)
        return await reject(scene, refusal)
    if scene.raw is not None:
        return await _raw(scene, scene.raw)
    if fault is not None and fault.kind in ALTERED:
        scene = replace(scene, answer=ALTERED[fault.kind](scene.answer, fault))
    if scene.stream and not scene.is_at(Misdeed.JSON):
        return await _stream(scene)
    return await _blocking(scene)


async def _stream(scene: Scene) -> Ended:
    await scene.head(200, scene.encoder.content_type)
    await scene.send(scene.encoder.opening())
    at, total = 0, len(scene.answer.pieces)
    while True:
        struck = await _strike(scene, at)
        if isinstance(struck, Ended):
            return struck
        at += struck
        if at >= total:
            return await _finish(scene, ())
        group = _group(scene, at)
        await _due(scene, at, len(group))
        at += len(group)
        if at == total and _held_back(scene):
            return await _finish(scene, group)
        await scene.send(scene.encoder.pieces(group))
        scene.record.sent(len(group))


async def _strike(scene: Scene, at: int) -> Ended | int:
    """The fault, if this is its place: how it ended, or how many pieces it swallowed."""
    fault = scene.fault
    if fault is None or fault.kind not in MIDST or at != place(fault, scene.answer):
        return 0
    return await MIDST[fault.kind](scene, fault, at)


def _held_back(scene: Scene) -> bool:
    """Whether the last piece waits for the finish: it cannot where a fault comes between."""
    fault = scene.fault
    between = fault is not None and fault.kind in MIDST
    return scene.dialect.text_in_finish and not between


def _group(scene: Scene, at: int) -> tuple[Piece, ...]:
    """The pieces of the next chunk: as the dialect wants, of one kind, none past a fault."""
    pieces = scene.answer.pieces
    end = min(at + scene.dialect.tokens_per_chunk, len(pieces))
    if scene.fault is not None and at < place(scene.fault, scene.answer) < end:
        end = place(scene.fault, scene.answer)
    first = pieces[at]
    group = [first]
    for piece in pieces[at + 1 : end]:
        alike = type(piece) is type(first) and piece.choice == first.choice
        if not alike or isinstance(piece, ToolCall):
            break
        group.append(piece)
    return tuple(group)


async def _due(scene: Scene, at: int, count: int) -> None:
    for token in range(at, at + count):
        await scene.due(token)


async def _finish(scene: Scene, held: tuple[Piece, ...]) -> Ended:
    await scene.send(scene.encoder.ending(scene.answer, held))
    scene.record.finish_sent = True
    scene.record.sent(len(held))
    fault = scene.fault
    if fault is not None and fault.kind in END:
        return await END[fault.kind](scene, fault)
    return await scene.end(scene.encoder.done(), Ended.COMPLETED)


async def _blocking(scene: Scene) -> Ended:
    """The whole answer as one document; a cut, a reset or a stall comes in its middle."""
    fault = scene.fault
    await _due(scene, 0, len(scene.answer.pieces))
    if fault is not None and fault.kind in {Misdeed.ERROR, Misdeed.ERROR_THEN_DONE}:
        return await reject(scene, fault)
    body = scene.encoder.whole(scene.answer)
    half = len(body) // 2
    await scene.head(200, JSON_TYPE, length=len(body))
    await scene.send(body[:half])
    if fault is not None and fault.kind in {Misdeed.CUT, Misdeed.RST, Misdeed.STALL}:
        struck = await MIDST[fault.kind](scene, fault, 0)
        if isinstance(struck, Ended):
            return struck
    ended = await scene.end(body[half:], Ended.COMPLETED)
    scene.record.finish_sent = True
    scene.record.sent(len(scene.answer.pieces))
    return ended


async def _raw(scene: Scene, raw: RawAnswer) -> Ended:
    scene.record.note(status=raw.status)
    await scene.outlet.head(raw.status, raw.headers)
    for index, piece in enumerate(raw.pieces()):
        await scene.due(index)
        await scene.send(piece)
        scene.record.sent(1)
    if raw.after == "end":
        return await scene.end(b"", Ended.COMPLETED)
    return await AT_LIMIT[raw.after](scene)
