"""Decides what one request gets: reads it, picks its fault and conduct, and sets the scene."""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeAlias

import msgspec

from router.simulate.answer import Answer, Ask, Conduct, Script, compose
from router.simulate.calls import make_call
from router.simulate.dialect import Dialect, Wire
from router.simulate.faults import ALIASES, Directives, FaultSpec, Misdeed, parse_directives
from router.simulate.intake import HttpRequest
from router.simulate.records import MAX_RECORDS, Journal, LiveRecord, RequestRecord
from router.simulate.scene import Gate, Pace, RawAnswer, Scene
from router.simulate.transport import Framing, Outlet

Faults: TypeAlias = str | FaultSpec | Directives | Sequence[str | FaultSpec | Directives | None]
"""Faults for every request, or a list with one (or None) per request in turn."""

DEFAULT_MODEL: Final = "sim-model"
DIRECTIVES_HEADER: Final = "x-simulate"


@dataclass(slots=True, kw_only=True)
class Manner:
    """The provider's own settings; a change counts from the next request on.

    Args: as those of `SimulatedProvider`.
    """

    script: Script
    conduct: Conduct
    pace: Pace
    dialect: Dialect
    raw: RawAnswer | Sequence[RawAnswer | None] | None = None
    model: str | None = None
    api_key: str | None = None
    framing: Framing = "chunked"
    write_bytes: int | None = None
    gate: Gate | None = None


class FaultPlan:
    """Which fault strikes which request.

    Args:
        faults: for every request, or per request in turn.
    """

    def __init__(self, faults: Faults | None) -> None:
        self._met: Counter[FaultSpec] = Counter()
        self._script: tuple[Directives, ...] | None = None
        self._always = Directives()
        self._first = 0
        self.set(faults, first=0)

    def set(self, faults: Faults | None, *, first: int) -> None:
        """Begin anew.

        Args:
            faults: for every request, or per request in turn.
            first: number of the request that a list begins with.
        """
        self._met.clear()
        self._script, self._always, self._first = None, Directives(), first
        if faults is None or isinstance(faults, str | FaultSpec | Directives):
            self._always = _directives(faults)
        else:
            self._script = tuple(_directives(fault) for fault in faults)

    @property
    def refusal(self) -> FaultSpec | None:
        """A `refuse` for every request: the listener is not to be opened at all."""
        for fault in self._always.faults:
            if fault.kind is Misdeed.REFUSE and fault.times is None and fault.requests is None:
                return fault
        return None

    def orders(self, number: int, suffix: str, header: str) -> Directives:
        """The directives for a request: the header's come before the model name's, then ours.

        Raises:
            ValueError: the header or the model name is no text of the mini language.
        """
        ours = self._always
        if self._script is not None:
            index = number - self._first
            ours = self._script[index] if index < len(self._script) else Directives()
        named = parse_directives(suffix.replace("!", ";"))
        return _merged(parse_directives(header), _merged(named, ours))

    def strike(self, faults: Sequence[FaultSpec], elapsed_s: float) -> FaultSpec | None:
        """The first fault that applies now; each one counts the requests that meet it."""
        if len(self._met) > MAX_RECORDS:
            self._met.clear()
        struck: FaultSpec | None = None
        for fault in faults:
            if struck is None and fault.applies(self._met[fault], elapsed_s):
                struck = fault
            self._met[fault] += 1
        return struck


class Casting:
    """Sets the scene for each request.

    Args:
        manner: the provider's settings.
        plan: its faults.
        journal: gets a record per request.
        clock: seconds.
        sleep: waits so many seconds.
        go_down: closes the provider's listener.
    """

    def __init__(
        self,
        manner: Manner,
        plan: FaultPlan,
        journal: Journal,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        go_down: Callable[[float | None], None],
    ) -> None:
        self._manner = manner
        self._plan = plan
        self._journal = journal
        self._clock = clock
        self._sleep = sleep
        self._go_down = go_down
        self.started = clock()

    def scene(self, request: HttpRequest, wire: Wire, writer: asyncio.StreamWriter) -> Scene:
        """What this request gets; a request that cannot be read gets a 400."""
        body = _object(request.body)
        model, _, suffix = wire.model(request, body).partition("!")
        record = self._record(request, body, model)
        outlet = Outlet(writer, framing="close" if request.old else self._manner.framing)
        bare = self._bare(record, wire, outlet)
        try:
            header = request.headers.get(DIRECTIVES_HEADER, "")
            orders = self._plan.orders(record.facts.number, suffix, header)
            return self._cast(bare, request, orders, self._fault(orders, wire.key(request)))
        except (ValueError, TypeError, AttributeError) as error:
            return replace(
                bare, fault=FaultSpec(kind=Misdeed.STATUS, status=400, message=str(error))
            )

    def _record(self, request: HttpRequest, body: dict[str, Any], model: str) -> LiveRecord:
        facts = RequestRecord(
            number=self._journal.count,
            path=request.path,
            query=request.query,
            headers=request.headers,
            raw=request.body,
            body=body,
            received_at=self._clock(),
            model=model,
        )
        record = LiveRecord(facts=facts, clock=self._clock, journal=self._journal)
        self._journal.add(record)
        return record

    def _bare(self, record: LiveRecord, wire: Wire, outlet: Outlet) -> Scene:
        """A scene in which nothing is asked yet."""
        manner, facts = self._manner, record.facts
        return Scene(
            answer=Answer(),
            stream=False,
            wire=wire,
            encoder=wire.encoder(Ask(), manner.dialect, model="", number=facts.number),
            dialect=manner.dialect,
            outlet=outlet,
            pace=manner.pace,
            record=record,
            sleep=self._sleep,
            clock=self._clock,
            go_down=self._go_down,
            started=facts.received_at,
        )

    def _cast(
        self, bare: Scene, request: HttpRequest, orders: Directives, fault: FaultSpec | None
    ) -> Scene:
        manner, facts = self._manner, bare.record.facts
        asked = bare.wire.ask(request, facts.body)
        script = self._script(orders, asked, facts.number)
        answer = compose(asked, script, self._conduct(orders))
        prefix = asked.prefix if answer.behaviour else None
        bare.record.note(
            stream=asked.stream,
            messages=asked.messages,
            tools=asked.tools,
            thinking=asked.thinking,
            fault=fault.kind if fault else None,
            style=prefix.style if prefix else None,
            prefix=prefix.text if prefix else "",
            behaviour=answer.behaviour,
            found=answer.found,
        )
        bare.outlet.order(
            write_bytes=orders.write_bytes or manner.write_bytes,
            limit_bytes=(fault.at or 0) if fault and fault.kind is Misdeed.CUT_BYTE else None,
            gzip=fault is not None and fault.kind is Misdeed.GZIP,
        )
        model = manner.model or facts.model or DEFAULT_MODEL
        return replace(
            bare,
            answer=answer,
            stream=asked.stream,
            encoder=bare.wire.encoder(asked, manner.dialect, model=model, number=facts.number),
            pace=self._pace(orders),
            fault=fault,
            gate=manner.gate,
            raw=self._scripted(facts.number),
        )

    def _fault(self, orders: Directives, given: str) -> FaultSpec | None:
        key = self._manner.api_key
        if key is not None and not hmac.compare_digest(given.encode(), key.encode()):
            return ALIASES["unauthorized"]
        return self._plan.strike(orders.faults, self._clock() - self.started)

    def _script(self, orders: Directives, asked: Ask, number: int) -> Script:
        """What there is to say, with the call that is ordered; results of one end in words."""
        script = self._manner.script
        if orders.call is None or asked.has_results:
            return script
        # Two providers may speak in one conversation, and its calls may not share an id.
        call_id = f"call_sim{asked.messages:03d}_{number:06d}"
        return replace(script, tool_calls=make_call(asked.offers, orders.call, call_id))

    def _conduct(self, orders: Directives) -> Conduct:
        mine = self._manner.conduct
        return replace(
            mine,
            prefix=orders.prefix or mine.prefix,
            instruct=orders.instruct or mine.instruct,
        )

    def _pace(self, orders: Directives) -> Pace:
        mine, first_s, rate = self._manner.pace, orders.first_token_s, orders.tokens_per_s
        return Pace(
            tokens_per_s=mine.tokens_per_s if rate is None else rate,
            first_token_delay_s=mine.first_token_delay_s if first_s is None else first_s,
        )

    def _scripted(self, number: int) -> RawAnswer | None:
        raw = self._manner.raw
        if raw is None or isinstance(raw, RawAnswer):
            return raw
        return raw[number] if number < len(raw) else None


def _directives(fault: str | FaultSpec | Directives | None) -> Directives:
    if fault is None:
        return Directives()
    if isinstance(fault, str):
        return parse_directives(fault)
    return fault if isinstance(fault, Directives) else Directives(faults=(fault,))


def _merged(first: Directives, second: Directives) -> Directives:
    """Both; where they disagree, `first` holds."""
    names = [field.name for field in fields(Directives) if field.name != "faults"]
    settings = {
        name: getattr(second, name) if getattr(first, name) is None else getattr(first, name)
        for name in names
    }
    return Directives(faults=first.faults + second.faults, **settings)


def _object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object; empty if it is none."""
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}
