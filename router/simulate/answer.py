"""What the simulated provider says: a canonical request becomes a list of canonical pieces.

Nothing here knows a wire format or a socket. Pieces are the events of `core/events.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from router.core.continuation import Style
from router.core.events import FinishReason, Reasoning, Text, ToolCall
from router.simulate.calls import Offer
from router.simulate.prefix import BEHAVIOURS, Prefix, Resume, locate, wants_rest
from router.simulate.text import seeded_text, tokenize

Piece: TypeAlias = Text | Reasoning | ToolCall
"""One token's worth of an answer."""

REFUSALS: Mapping[str, str] = {
    "anthropic": (
        "This model does not support assistant message prefill. "
        "The conversation must end with a user message."
    ),
    "gemini": "Requests ending with a model turn are not supported.",
    "llama.cpp": "Assistant response prefill is incompatible with enable_thinking",
    "mistral": (
        "Expected last role User or Tool (or Assistant with prefix True) for serving "
        "but got assistant"
    ),
}
"""How known families refuse an assistant prefix."""

DEFAULT_CHARS = 2_000
_OTHER_CHARS = 600


def _other_text() -> str:
    return seeded_text("other", _OTHER_CHARS)


def _seeded() -> str:
    return seeded_text(0, DEFAULT_CHARS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What there is to say.

    Args:
        text: the canonical answer.
        other_text: what `differ` says instead of the rest.
        reasoning: said before the text, unless an assistant prefix is continued.
        tool_calls: whole calls (index, id, name, arguments), said after the text.
        json_text: the document said in place of `text` when `response_format` is given.
    """

    text: str = field(default_factory=_seeded)
    other_text: str = field(default_factory=_other_text)
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    json_text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """What the provider does with a prefix.

    Args:
        prefix: name of a behaviour (`BEHAVIOURS`, or `refuse`) for an assistant tail.
        instruct: the same for an assistant message with a nudge after it; None does as `prefix`
            says, or continues where `prefix` refuses.
        refusal: key of `REFUSALS`, or the wording itself; "" is the format's own.
        accepts: styles of assistant tail that are taken; any other is refused. None takes all.
    """

    prefix: str = "continue"
    instruct: str | None = None
    refusal: str = ""
    accepts: frozenset[Style] | None = None

    def __post_init__(self) -> None:
        """Refuse a behaviour that does not exist."""
        for name in (self.prefix, self.instruct or "continue"):
            if name != "refuse" and name not in BEHAVIOURS:
                raise ValueError(
                    f"Unknown behaviour {name!r}; known: refuse, {known_behaviours()}."
                )

    def behaviour(self, style: Style) -> str:
        """The behaviour towards a prefix in that style."""
        if style is Style.INSTRUCT:
            own = "continue" if self.prefix == "refuse" else self.prefix
            return self.instruct or own
        if self.accepts is not None and style not in self.accepts:
            return "refuse"
        return self.prefix


def known_behaviours() -> str:
    """The names of the behaviours that answer, for messages and help."""
    return ", ".join(BEHAVIOURS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request, whatever format it came in.

    Args:
        model: as asked for.
        stream: a stream is wanted.
        include_usage: usage is wanted at the end of it.
        prompt_tokens: size of the prompt.
        max_tokens: bound on the tokens of reasoning and text, or None.
        stop: stop sequences.
        choices: how many answers.
        structured: a JSON document is wanted.
        prefix: the assistant text to continue, if the request ends with one.
        messages: how many messages it holds.
        tools: names of the tools that it offers.
        offers: those of them that the client runs itself.
        has_results: it ends with results of calls.
        thinking: reasoning is switched on, or off (none is said then); None: nothing is said of it.
        hides_thinking: of the reasoning only the signature is wanted.
        whole_calls: the format has no pieces of a tool call.
        counts: only the size of the prompt is asked for.
        array: the stream is to be one JSON array.
        cached_tokens: of the prompt, what is reported as read from a cache.
        refusal: key of `REFUSALS`: the format's own words.
        takes_prefix: the model that is named can continue an assistant tail at all.
    """

    model: str = ""
    stream: bool = False
    include_usage: bool = False
    prompt_tokens: int = 0
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    choices: int = 1
    structured: bool = False
    prefix: Prefix | None = None
    messages: int = 0
    tools: tuple[str, ...] = ()
    offers: tuple[Offer, ...] = ()
    has_results: bool = False
    thinking: bool | None = None
    hides_thinking: bool = False
    whole_calls: bool = False
    counts: bool = False
    array: bool = False
    cached_tokens: int = 0
    refusal: str = "anthropic"
    takes_prefix: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What will be said.

    Args:
        pieces: in order; joined texts are exact.
        reason: why it ends.
        matched: the stop sequence that ended it, or "".
        prompt_tokens: for the usage report.
        choices: how many choices the pieces are spread over.
        behaviour: what was done with a prefix, or "" if there was none.
        found: the prefix was found in what there is to say; None if there was none.
        refused: not None: nothing is said, and this is the reason.
    """

    pieces: tuple[Piece, ...] = ()
    reason: FinishReason = "stop"
    matched: str = ""
    prompt_tokens: int = 0
    choices: int = 1
    behaviour: str = ""
    found: bool | None = None
    refused: str | None = None

    def text(self) -> str:
        """The answer text of the first choice."""
        return "".join(p.text for p in self.pieces if isinstance(p, Text) and p.choice == 0)


def compose(ask: Ask, script: Script, conduct: Conduct) -> Answer:
    """Decide what is said.

    Args:
        ask: the request.
        script: what there is to say.
        conduct: what is done with a prefix.

    Returns:
        The answer, or a refusal of the prefix.
    """
    if ask.counts:
        return Answer(prompt_tokens=ask.prompt_tokens)
    source = script.json_text if ask.structured and script.json_text is not None else script.text
    prefix = ask.prefix
    if prefix is None or not wants_rest(prefix, source, script.other_text):
        return _answer(ask, source, script)
    behaviour = conduct.behaviour(prefix.style)
    if behaviour == "refuse" or not (ask.takes_prefix or prefix.style is Style.INSTRUCT):
        words = conduct.refusal or ask.refusal
        refusal = REFUSALS.get(words, words)
        return Answer(behaviour="refuse", refused=refusal)
    place = locate(prefix.text, source, script.other_text)
    said = source
    if place is not None:
        resume = Resume(prefix=prefix.text, place=place, whole=source, other=script.other_text)
        said = BEHAVIOURS[behaviour](resume)
    return _answer(ask, said, script, behaviour=behaviour, found=place is not None)


def _answer(
    ask: Ask, text: str, script: Script, *, behaviour: str = "", found: bool | None = None
) -> Answer:
    native = ask.prefix is not None and behaviour and ask.prefix.style is not Style.INSTRUCT
    silent = native or ask.thinking is False
    said, matched = _stopped(text, ask.stop)
    spoken: list[Piece] = [] if silent else [Reasoning(t) for t in tokenize(script.reasoning)]
    spoken += [Text(token) for token in tokenize(said)]
    calls = [piece for call in script.tool_calls for piece in _call_pieces(call, ask)]
    finish: FinishReason = "tool_calls" if calls else "stop"
    if matched:
        calls, finish = [], "stop"
    if ask.max_tokens is not None and len(spoken) > ask.max_tokens:
        spoken, calls, finish, matched = spoken[: ask.max_tokens], [], "length", ""
    return Answer(
        pieces=_spread([*spoken, *calls], ask.choices),
        reason=finish,
        matched=matched,
        prompt_tokens=ask.prompt_tokens,
        choices=ask.choices,
        behaviour=behaviour,
        found=found,
    )


def _stopped(text: str, stop: Sequence[str]) -> tuple[str, str]:
    """The text up to the first stop sequence, and which one that was."""
    ends = [(at, word) for word in stop if word and (at := text.find(word)) >= 0]
    if not ends:
        return text, ""
    at, word = min(ends)
    return text[:at], word


def _call_pieces(call: ToolCall, ask: Ask) -> list[Piece]:
    """A call: id and name first, then the arguments token by token; or all of it at once."""
    if ask.whole_calls:
        return [call]
    opening = ToolCall(index=call.index, id=call.id, name=call.name, legacy=call.legacy)
    return [
        opening,
        *(
            ToolCall(index=call.index, arguments=token, legacy=call.legacy)
            for token in tokenize(call.arguments)
        ),
    ]


def _spread(pieces: list[Piece], choices: int) -> tuple[Piece, ...]:
    """The same answer for every choice, token by token in turn."""
    if choices == 1:
        return tuple(pieces)
    return tuple(chain.from_iterable(_copies(piece, choices) for piece in pieces))


def _copies(piece: Piece, choices: int) -> list[Piece]:
    if isinstance(piece, ToolCall):
        return [
            ToolCall(piece.index, piece.id, piece.name, piece.arguments, choice, piece.legacy)
            for choice in range(choices)
        ]
    return [type(piece)(piece.text, choice) for choice in range(choices)]
