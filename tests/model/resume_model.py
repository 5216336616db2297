"""A small world, explored whole: one stream, its client, one Redis, and the routers that write.

An answer is a few sentences of two halves each; whoever writes a sentence words it in a way of its
own, so that a text which nobody wrote is known by its looks. What decides is the product's own:
`CommitMachine`, `Backlog`, `Facts`, `plan_resumption`. Modelled are the wires between them, and the
script that runs inside Redis (`Redis.write`; `test_resume_model.py` holds it to the real one).

States are immutable. `steps` gives everything that may happen next. What goes wrong is counted, and
bounded by a `Budget`; whatever is not forbidden by it happens in every order.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from router.core.commit import CommitMachine, State
from router.core.resumption import plan_resumption
from router.engine.resume import Facts, facts_of
from router.store.backlog import FENCED, MISMATCH, MISSING, WHEREVER, Backlog, Tally, Write
from router.store.base import Record, RecordHead
from router.store.codec import decode_meta
from router.store.scripts import write_args

TTL_MS = 60_000
KEEP_S = 60.0
HEAD = RecordHead(
    stream_id="stream", kind="text", route="chat", request_digest="d", owner="o", created=0.0
)
_TALLY = Tally()
_FIRST = 33  # the first printable character


class Broken(AssertionError):
    """A rule does not hold."""


# -- Redis -----------------------------------------------------------------------------------------


class Stored(NamedTuple):
    """A record inside Redis. `gone` is what a deletion leaves where a late command may come."""

    epoch: int
    writer: str
    text: bytes = b""
    boundaries: int = 0
    stale: bool = False
    meta: bytes = b""
    outcome: str = ""
    gone: bool = False


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What can be switched off, to see that it is needed.

    Args:
        epochs: an older epoch is fenced out.
        writers: so is another writer under the same epoch.
        parts: a client says which response it heard last.
        graves: a record that was taken over leaves a tombstone when it is deleted.
        claims: a response that was resumed writes down that it is whole, and waits until that is
            certain, before its client is told.
    """

    epochs: bool = True
    writers: bool = True
    parts: bool = True
    graves: bool = True
    claims: bool = True


def write_redis(
    held: Stored | None, args: Sequence[Any], rules: Rules
) -> tuple[Stored | None, int]:
    """The script `WRITE`.

    Args:
        held: what is there.
        args: as `write_args` makes them.
        rules: in force.

    Returns:
        What is there then, and the answer.
    """
    (epoch, writer, head, _, at_chars, at_bytes, delta, anew) = args[:8]
    chars, size, boundaries, meta, outcome, _, remove, mends = args[8:]
    if held is not None:
        if rules.epochs and (held.gone or held.epoch > epoch):
            return held, FENCED
        if rules.writers and held.epoch == epoch and held.writer != writer:
            return held, FENCED
    if remove:
        return (Stored(epoch, "", gone=True) if remove == "tombstone" else None), 0
    same = held is not None and (held.epoch == epoch or not rules.epochs)
    if held is None or not same:
        if not head:
            return held, MISSING
        held = Stored(epoch, writer)
    length = len(held.text)  # one byte a character here
    fits = length == at_chars and (anew or length == at_bytes)
    repeats = length == chars == size and held.boundaries == boundaries
    answer = chars
    if at_chars == WHEREVER or not (fits or repeats):
        held = held._replace(stale=held.stale or chars > length)
        if at_chars != WHEREVER:
            return held, MISMATCH - length
        answer = length
    elif length == at_chars:
        if delta:
            text = delta if anew else held.text + delta
            held = held._replace(text=text, boundaries=boundaries)
        if mends:
            held = held._replace(stale=False)
    held = held._replace(meta=meta or held.meta, outcome=outcome or held.outcome)
    return held, answer


# -- the routers -----------------------------------------------------------------------------------


class Writer:
    """One response of the stream: a router's machine, its queue, and what it has sent.

    Args:
        number: of the writer, from 0; also names its response.
        machine: its progress.
        backlog: what it still has to tell Redis.
        start: delivered offset from which it went on.
    """

    def __init__(self, number: int, machine: CommitMachine, backlog: Backlog, start: int) -> None:
        self.number = number
        self.machine = machine
        self.backlog = backlog
        self.start = start
        self.wording = 2 * number
        self.sent = ""
        self.alive = True
        """Its process lives, and it goes on writing."""
        self.finished = False
        self.heard = True
        """Its client is connected."""
        self.claims = False
        """It has written down that the answer is whole."""
        self.replays = False
        """So had the one before it: it asks no provider."""
        self.told = False
        """Its client was given a finish."""
        self.facts_due = True
        backlog.source = self._committed

    def clone(self) -> Writer:
        """One that may be changed."""
        twin = copy.copy(self)
        twin._key = None
        twin.machine = _clone(self.machine)
        twin.backlog = _clone(self.backlog)
        twin.backlog._envelope = copy.copy(self.backlog._envelope)
        if twin.backlog.source is not None:
            twin.backlog.source = twin._committed
        return twin

    def _committed(self) -> str:
        return self.machine.committed_text

    @property
    def key(self) -> tuple[Any, ...]:
        """All that matters of it."""
        if self._key is None:
            self._key = self._make_key()
        return self._key

    def _make_key(self) -> tuple[Any, ...]:
        machine, backlog = self.machine, self.backlog
        wrote = (machine.committed_text, machine.fragment, self.sent, self.alive, self.told)
        if backlog.over and not self.goes_on:
            return wrote
        return (
            *wrote, self.wording, self.finished, self.facts_due, self.start, self.claims,
            self.replays,
            machine.state, tuple(machine.superseded), machine.delivered_chars,
            *(_frozen(getattr(backlog, name)) for name in _MATTERS), backlog.source is None,
        )  # fmt: skip

    @property
    def goes_on(self) -> bool:
        """It will write more."""
        return self.alive and not self.finished and not self.backlog.fenced

    @property
    def waits(self) -> bool:
        """It has claimed the end, and Redis has not answered."""
        return self.claims and not self.replays and self.backlog.has_work

    def facts(self) -> Facts:
        """For the next one."""
        return Facts(
            epoch=self.backlog.epoch,
            part=str(self.number),
            start=self.start,
            superseded=tuple(self.machine.superseded),
            finish="stop" if self.claims else "",
        )

    _key: tuple[Any, ...] | None = None


_MATTERS = (
    "_commits", "_create", "_end", "_fit", "_from_chars", "_held", "_mends", "_meta", "_meta_due",
    "_parts", "_recoveries", "_repeated", "_under_way", "boundaries", "chars", "epoch", "fenced",
    "over", "writer",
)  # fmt: skip
"""The slots of a `Backlog` in which two of them can differ."""


def _frozen(value: Any) -> Any:  # noqa: ANN401 - whatever a slot holds
    return tuple(value) if isinstance(value, list) else value


def _clone(one: Any) -> Any:  # noqa: ANN401 - a machine or a backlog
    twin = copy.copy(one)
    for name in type(one).__slots__:
        value = getattr(one, name)
        if type(value) is list:
            setattr(twin, name, value.copy())
    return twin


# -- the world -------------------------------------------------------------------------------------


class Client(NamedTuple):
    """It counts what it has, and notes what a later response replaced.

    Args:
        text: all that came.
        holes: ranges of it that were replaced.
        part: the last response that reached it, or -1.
        listens: number of the writer it is connected to, or -1.
        read: characters of what that one sent that have come.
        done: "" while it goes on, "whole", or "refused".
    """

    text: str = ""
    holes: tuple[tuple[int, int], ...] = ()
    part: int = -1
    listens: int = -1
    read: int = 0
    done: str = ""


class Budget(NamedTuple):
    """How much may go wrong.

    Args:
        resumptions: responses after the first one.
        crashes: routers that die.
        ghosts: commands that arrive late, while their sender believes them lost.
        losses: times that Redis forgets its newest part, or everything.
        lost_answers: resumptions whose answer never reaches the client.
        late: requests that are served long after the client gave them up.
        rewordings: providers that die, and whose sentence is worded anew.
    """

    resumptions: int = 1
    crashes: int = 0
    ghosts: int = 0
    losses: int = 0
    lost_answers: int = 0
    late: int = 0
    rewordings: int = 0


@dataclass(frozen=True)
class World:
    """One state."""

    redis: Stored | None
    writers: tuple[Writer, ...]
    client: Client
    left: Budget
    past: tuple[Stored | None, ...] = ()
    """What Redis held before, and may go back to."""
    ghost: Write | None = None
    request: tuple[int, int] | None = None
    """A request that is under way for too long: last part heard, characters received."""
    taken: int = 1
    """The highest epoch that was ever given."""
    key: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Make the key: worlds with the same one have the same future. It is a hash of 64 bits: of
        a million states, two share one by accident once in thirty million searches."""
        key = (
            self.redis, tuple(one.key for one in self.writers), self.client, self.left,
            self.past if self.left.losses else (), self.ghost, self.request, self.taken,
        )  # fmt: skip
        object.__setattr__(self, "key", hash(key))


Step = tuple[str, World]


class Model:
    """The world's laws.

    Two questions are asked apart, since together they take too long. Does a client get a text that
    somebody wrote? For that, a world ends with the last response that is allowed: its writer asks
    Redis for nothing more, so how it ends is certain. Does an old writer ever change a record? For
    that, every writer goes on to its end, and what exactly the client has read does not matter.

    Args:
        sentences: of the answer.
        rules: in force.
        to_the_end: the second question, not the first.
    """

    def __init__(
        self, sentences: int = 2, rules: Rules | None = None, *, to_the_end: bool = False
    ) -> None:
        self._sentences = sentences
        self._to_the_end = to_the_end
        self._rules = rules or Rules()
        self.on_write: Callable[[Write, Stored | None, int], None] | None = None
        """Told of every command that Redis takes."""

    def begin(self, budget: Budget) -> World:
        """A client has asked, and the first router has opened the stream."""
        backlog = Backlog(HEAD, _TALLY, writer="w0")
        writer = Writer(0, CommitMachine(), backlog, 0)
        return World(None, (writer,), Client(part=0, listens=0), budget)

    # What may happen.

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that may happen next."""
        for writer in world.writers:
            yield from self._writing(world, writer.number)
        if world.ghost is not None:
            yield "a late command arrives", self._ghost_arrives(world)
        yield from self._listening(world)
        if world.client.listens < 0:
            yield from self._coming_back(world)
        if world.request is not None and self._can_take(world):
            late = self._taken_over(replace(world, request=None), *world.request)
            late = self._with(late, len(world.writers), _forget)
            yield "a late request is served, and nobody listens", late
        if world.left.losses:
            for index, before in enumerate({None, *world.past} - {world.redis}):
                left = world.left._replace(losses=world.left.losses - 1)
                yield f"Redis goes back ({index})", replace(world, redis=before, left=left)

    def _writing(self, world: World, number: int) -> Iterator[Step]:
        writer, left = world.writers[number], world.left
        name = f"w{number}"
        if writer.goes_on and not writer.waits:
            yield f"{name} writes", self._with(world, number, self._deliver)
            if left.rewordings and writer.machine.fragment and writer.machine.state is State.TEXT:
                fewer = replace(world, left=left._replace(rewordings=left.rewordings - 1))
                yield f"{name} is worded anew", self._with(fewer, number, _reword)
        if left.crashes and writer.alive and not writer.finished:
            fewer = replace(world, left=left._replace(crashes=left.crashes - 1))
            yield f"{name} dies", self._with(fewer, number, _die)
        if writer.backlog.has_work and (writer.alive or not writer.finished):
            yield f"{name}'s command arrives", self._flush(world, number)
            if left.ghosts and world.ghost is None:
                yield f"{name}'s command is late", self._haunt(world, number)

    def _listening(self, world: World) -> Iterator[Step]:
        client = world.client
        if client.listens < 0:
            return
        writer = world.writers[client.listens]
        unread = writer.sent[client.read :]
        if writer.finished and writer.alive:
            yield "the client has all of it", self._complete(world, writer)
        if not (world.left.resumptions or world.request):
            return  # it could not come back
        for count in [len(unread)] if self._to_the_end else range(len(unread) + 1):
            gone = client._replace(text=client.text + unread[:count], listens=-1, read=0)
            lost = self._with(replace(world, client=gone), writer.number, _forget)
            yield f"the connection breaks after {count}", lost
            if writer.alive and not writer.finished:
                noticed = self._with(lost, writer.number, _notice)
                yield f"the connection breaks after {count}, and is noticed", noticed

    def _coming_back(self, world: World) -> Iterator[Step]:
        client, left = world.client, world.left
        if left.late and world.request is None and len(world.writers) > 0:
            fewer = left._replace(late=left.late - 1)
            asked = (client.part, len(client.text))
            yield "a request is under way", replace(world, left=fewer, request=asked)
        if not left.resumptions:
            return
        if not self._can_take(world):
            yield "the client is refused", replace(world, client=client._replace(done="refused"))
            return
        new = self._taken_over(world, client.part, len(client.text))
        writer = new.writers[-1]
        start = writer.start
        holes = tuple((a, min(b, start)) for a, b in client.holes if a < start)
        if start < len(client.text):
            holes = (*holes, (start, len(client.text)))
        heard = client._replace(holes=holes, part=writer.number, listens=writer.number)
        joined = replace(new, client=heard)
        if new.left.resumptions or self._to_the_end:
            yield "the client comes back", joined
        else:
            yield "the client comes back, and hears all", self._last(joined)
        if left.lost_answers and new.left.resumptions:
            fewer = new.left._replace(lost_answers=left.lost_answers - 1)
            unheard = self._with(replace(new, left=fewer), writer.number, _forget)
            yield "the answer to the client's coming back is lost", unheard

    # What it does.

    def _with(self, world: World, number: int, change: Callable[[Writer], None]) -> World:
        twin = world.writers[number].clone()
        change(twin)
        writers = (*world.writers[:number], twin, *world.writers[number + 1 :])
        return replace(world, writers=writers)

    def _deliver(self, writer: Writer) -> None:
        """The next half of a sentence goes out; a whole one is committed."""
        machine = writer.machine
        at = machine.committed_chars + len(machine.fragment)
        if at == 2 * self._sentences:
            self._end(writer)
            return
        half = chr(_FIRST + 8 * writer.wording + at)
        machine.text(half)
        writer.sent += half if writer.heard else ""
        if at % 2:
            before = machine.committed_chars
            delta = machine.commit(2)
            meta = writer.facts().to_meta() if writer.facts_due else None
            writer.facts_due = False
            writer.backlog.commit(delta, before, meta)

    def _end(self, writer: Writer) -> None:
        """The answer is whole: claim that, if another may have taken it over, then say so."""
        if self._rules.claims and writer.number and not writer.claims:
            writer.claims = True
            writer.backlog.commit("", writer.machine.committed_chars, writer.facts().to_meta())
            return
        writer.machine.finish()
        writer.finished = writer.told = True
        writer.backlog.close("completed", 0)

    def _flush(self, world: World, number: int) -> World:
        twin = world.writers[number].clone()
        write = twin.backlog.take()
        assert write is not None
        redis, answer = self._write(world, write)
        twin.backlog.settle(answer)
        writers = (*world.writers[:number], twin, *world.writers[number + 1 :])
        return self._moved(replace(world, writers=writers), redis)

    def _haunt(self, world: World, number: int) -> World:
        twin = world.writers[number].clone()
        write = twin.backlog.take()
        writers = (*world.writers[:number], twin, *world.writers[number + 1 :])
        left = world.left._replace(ghosts=world.left.ghosts - 1)
        return replace(world, writers=writers, ghost=write, left=left)

    def _ghost_arrives(self, world: World) -> World:
        assert world.ghost is not None
        redis, _ = self._write(world, world.ghost)
        return self._moved(replace(world, ghost=None), redis)

    def _write(self, world: World, write: Write) -> tuple[Stored | None, int]:
        args = write_args(write, TTL_MS)
        if args[14] and not (self._rules.graves or write.repeated):
            args = (*args[:14], "now", *args[15:])
        redis, answer = write_redis(world.redis, args, self._rules)
        if self.on_write is not None:
            self.on_write(write, redis, answer)
        self._check_write(world, write, redis)
        return redis, answer

    def _moved(self, world: World, redis: Stored | None) -> World:
        past = world.past
        if world.left.losses and world.redis is not None and world.redis not in past:
            past = (*past, world.redis)
        return replace(world, redis=redis, past=past)

    def _can_take(self, world: World) -> bool:
        """There is a record, and a response more is allowed."""
        redis = world.redis
        return redis is not None and not redis.gone and world.left.resumptions > 0

    def _taken_over(self, world: World, part: int, received: int) -> World:
        """A router takes the stream over, as `api/resume.py` does it."""
        redis, number = world.redis, len(world.writers)
        assert redis is not None
        record = Record(
            head=HEAD,
            epoch=redis.epoch,
            text=redis.text.decode(),
            boundaries=redis.boundaries,
            stale=redis.stale,
            meta=decode_meta("stream", redis.meta),
        )
        facts = facts_of(record)
        heard = str(part) if self._rules.parts else None
        known = facts.known(received, part=heard, epoch=redis.epoch)
        plan = plan_resumption(record.text, facts.superseded, received, known=known)
        epoch, token = redis.epoch + 1, f"w{number}"
        backlog = Backlog(HEAD, _TALLY, writer=token, resumed=replace(record, epoch=epoch))
        backlog._envelope.read(redis.text)
        machine = CommitMachine.resumed(
            record.text, record.boundaries, plan.received, plan.superseded
        )
        machine.replayed(len(plan.replay))
        writer = Writer(number, machine, backlog, plan.start)
        writer.claims = writer.replays = bool(facts.finish)
        writer.sent = plan.replay
        backlog.commit("", machine.committed_chars, writer.facts().to_meta())
        left = world.left._replace(resumptions=world.left.resumptions - 1)
        taken = redis._replace(epoch=epoch, writer=token, outcome="")
        new = replace(
            world,
            writers=(*world.writers, writer),
            left=left,
            taken=max(world.taken, epoch),
        )
        return self._moved(new, taken)

    def _last(self, world: World) -> World:
        """Nothing more can go wrong for the client."""
        self.check(world)
        writer = world.writers[-1].clone()
        while not writer.finished:
            self._deliver(writer)
        return self._complete(world, writer)

    def _complete(self, world: World, writer: Writer) -> World:
        client = world.client
        whole = client._replace(text=client.text + writer.sent[client.read :])
        self._check_end(whole, writer)
        return replace(world, client=whole._replace(listens=-1, done="whole"))

    # What must hold.

    def _check_write(self, world: World, write: Write, redis: Stored | None) -> None:
        before = world.redis
        if redis == before:
            return
        sound = "losses" if world.left.losses or world.past else ""
        if not sound and write.epoch < world.taken:
            raise Broken(f"an old writer changed the record: {before} -> {redis}")
        if redis is None or redis.gone:
            return
        held = before is not None and not before.gone and before.epoch == redis.epoch
        if held and before is not None and len(redis.text) < len(before.text):
            raise Broken("a commit went backward")

    def check(self, world: World) -> None:
        """What holds in every state.

        Raises:
            Broken: something does not.
        """
        redis, client = world.redis, world.client
        if redis is not None and not redis.gone:
            text = redis.text.decode()
            wrote = [one.machine.committed_text for one in world.writers]
            if not any(one.startswith(text) for one in wrote):
                raise Broken(f"the record holds {text!r}, which nobody wrote: {wrote}")
            owner = next((one for one in world.writers if one.backlog.writer == redis.writer), None)
            if owner is not None and not owner.machine.canonical_text.startswith(text):
                raise Broken("the record is past what its owner delivered")
        if client.listens >= 0:
            self._check_joined(client, world.writers[client.listens])
        ends = [one.number for one in world.writers[1:] if one.told and not one.replays]
        if len(ends) > 1 and not (world.left.losses or world.past):
            raise Broken(f"more than one has written the end: {ends}")

    def _check_joined(self, client: Client, writer: Writer) -> None:
        """Delivered minus superseded is the answer so far."""
        text = client.text + writer.sent[client.read :]
        machine = writer.machine
        if len(text) != machine.delivered_chars:
            raise Broken(f"the client has {len(text)}, not {machine.delivered_chars}")
        if without(text, machine.superseded) != machine.canonical_text:
            raise Broken(f"{text!r} minus {machine.superseded} is not {machine.canonical_text!r}")

    def _check_end(self, client: Client, writer: Writer) -> None:
        answer = without(client.text, writer.machine.superseded)
        if answer != writer.machine.canonical_text:
            raise Broken(f"the client has {answer!r}, not {writer.machine.canonical_text!r}")
        places = [(ord(one) - _FIRST) % 8 for one in answer]
        words = [(ord(one) - _FIRST) // 8 for one in answer]
        if places != list(range(2 * self._sentences)):
            raise Broken(f"sentences are missing, or doubled: {places}")
        if words[::2] != words[1::2]:
            raise Broken(f"a sentence that nobody wrote: {words}")
        if not any(one % 2 for one in words) and without(client.text, client.holes) != answer:
            raise Broken(f"a client that cuts has {client.text!r} minus {client.holes}")


def _reword(writer: Writer) -> None:
    """The provider dies, and the next one words the sentence in its own way."""
    writer.machine.fault()
    writer.machine.supersede(0, "")
    writer.wording += 1
    writer.facts_due = True


def _forget(writer: Writer) -> None:
    """Nobody will read what is still on its way."""
    writer.sent, writer.heard = "", False


def _die(writer: Writer) -> None:
    writer.alive = False
    writer.finished = True  # nothing of it is left, its queue included
    writer.backlog.over = True


def _notice(writer: Writer) -> None:
    """The client is gone: nothing is written any more, and the record is closed, to be kept."""
    writer.alive = False
    writer.backlog.close("client_gone", KEEP_S)


def without(text: str, ranges: Sequence[tuple[int, int]]) -> str:
    """A text without some of its ranges."""
    kept, at = [], 0
    for start, end in ranges:
        kept.append(text[at:start])
        at = end
    return "".join((*kept, text[at:]))


# -- the search ------------------------------------------------------------------------------------


class Explored(NamedTuple):
    """What a search saw.

    Args:
        states: different ones, those apart in which the client is done.
        whole: ways into a state in which it has the whole answer.
        refused: ways into one in which it was refused.
    """

    states: int
    whole: int
    refused: int


def explore(model: Model, budget: Budget, *, limit: int = 5_000_000) -> Explored:
    """Go through every state.

    Args:
        model: the laws.
        budget: how much may go wrong.
        limit: bound on the states, so that a mistake in a budget ends.

    Raises:
        Broken: a rule does not hold; the message tells the shortest way there.
    """
    first = model.begin(budget)
    before: dict[int, tuple[int, str] | None] = {first.key: None}
    queue = deque([first])
    whole = refused = 0
    while queue:
        world = queue.popleft()
        label = ""
        steps = model.steps(world)
        try:
            model.check(world)
            for label, after in steps:
                if after.client.done:
                    whole += after.client.done == "whole"
                    refused += after.client.done == "refused"
                elif after.key not in before:
                    before[after.key] = (world.key, label)
                    queue.append(after)
        except Broken as error:
            raise Broken(f"{error}\n{_way(before, world.key)}\nthen after: {label}") from None
        assert len(before) < limit, "too many states"
    return Explored(len(before), whole, refused)


def _way(before: dict[int, tuple[int, str] | None], key: int) -> str:
    steps: list[str] = []
    at = before[key]
    while at is not None:
        steps.append(at[1])
        at = before[at[0]]
    return "\n".join(reversed(steps))
