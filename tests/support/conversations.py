"""Conversations for property tests, and what two of them have in common across formats."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from router.core.conversation import (
    CallPart,
    Conversation,
    Document,
    MediaPart,
    Part,
    ResultPart,
    Sampling,
    TextPart,
    Thinking,
    Tool,
    ToolChoice,
    Turn,
)

TEXTS = st.text(min_size=1, max_size=12).filter(str.strip)
IDS = st.text("abcdefXYZ019_-", min_size=1, max_size=8)
NAMES = st.text("abcxyz_", min_size=1, max_size=6)
BYTES = st.binary(min_size=1, max_size=8).map(lambda data: base64.b64encode(data).decode())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
ARGUMENTS = st.dictionaries(st.text(max_size=4), JSON, max_size=3).map(json.dumps)

TEXT_PARTS = TEXTS.map(lambda text: TextPart(where="", text=text))
IMAGES = BYTES.map(
    lambda data: MediaPart(where="", kind="image", media_type="image/png", data=data)
) | st.just(MediaPart(where="", kind="image", url="https://example.com/a.png"))
DOCUMENTS = st.builds(
    lambda data, name: MediaPart(
        where="", kind="document", media_type="application/pdf", data=data, name=name
    ),
    BYTES,
    NAMES,
)
NUMBERS = st.none() | st.sampled_from([0, 0.25, 1])

THOUGHTS = st.sampled_from(
    [
        None,
        Thinking(where="", on=False),
        Thinking(where="", on=True),
        Thinking(where="", on=True, effort="high"),
        Thinking(where="", on=True, budget_tokens=2_048, shown=True),
        Thinking(where="", on=True, effort="max", shown=False),
    ]
)
"""How much to reason, as Anthropic says it."""


@st.composite
def exchanges(draw: st.DrawFn, ids: Iterable[str]) -> list[Turn]:
    """A question, and perhaps an answer; where that calls tools, their results as well."""
    asked = tuple(draw(st.lists(TEXT_PARTS | IMAGES | DOCUMENTS, min_size=1, max_size=3)))
    turns = [Turn(where="", role="user", parts=asked)]
    said: list[Part] = list(draw(st.lists(TEXT_PARTS, max_size=2)))
    calls = [
        CallPart(where="", id=call_id, name=draw(NAMES), arguments=draw(ARGUMENTS))
        for call_id in ids
    ]
    if said or calls:
        turns.append(Turn(where="", role="assistant", parts=(*said, *calls)))
    if calls:
        results = [draw(results_of(call)) for call in draw(st.permutations(calls))]
        more = draw(st.lists(TEXT_PARTS, max_size=1))
        turns.append(Turn(where="", role="user", parts=(*results, *more)))
    return turns


@st.composite
def results_of(draw: st.DrawFn, call: CallPart) -> ResultPart:
    """What a call brought."""
    parts = tuple(draw(st.lists(TEXT_PARTS, max_size=2)))
    return ResultPart(
        where="", call_id=call.id, name=call.name, parts=parts, error=draw(st.booleans())
    )


@st.composite
def tool_lists(draw: st.DrawFn) -> tuple[Tool, ...]:
    """Tools, distinct by name."""
    schemas: list[dict[str, Any]] = [
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    ]
    return tuple(
        Tool(
            where="",
            name=name,
            description=draw(st.just("") | TEXTS),
            parameters=draw(st.sampled_from(schemas)),
        )
        for name in draw(st.lists(NAMES, max_size=3, unique=True))
    )


def choices(tools: tuple[Tool, ...]) -> st.SearchStrategy[ToolChoice | None]:
    """Which of some tools is called."""
    if not tools:
        return st.none()
    words = [ToolChoice(mode="auto"), ToolChoice(mode="none"), ToolChoice(mode="required")]
    named = [ToolChoice(mode="named", name=tool.name) for tool in tools]
    return st.none() | st.sampled_from([*words, *named])


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    """What every format can say."""
    ids = draw(st.lists(IDS, max_size=4, unique=True))
    turns: list[Turn] = []
    while ids or not turns:
        count = draw(st.integers(0, 2))
        turns += draw(exchanges(ids[:count]))
        ids = ids[count:] if count else ids[1:]
    turns.append(Turn(where="", role="user", parts=(draw(TEXT_PARTS),)))
    tools = draw(tool_lists())
    choice = draw(choices(tools))
    calling = tools and choice != ToolChoice(mode="none")
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    closed = schema | {"additionalProperties": False, "required": ["x"]}
    document = Document(where="", schema=closed, strict=True)
    return Conversation(
        turns=tuple(turns),
        system=tuple(draw(st.lists(TEXT_PARTS, max_size=2))),
        tools=tools,
        tool_choice=choice,
        parallel_calls=draw(st.sampled_from([None, False])) if calling else None,
        max_tokens=draw(st.integers(1, 9_000)),
        stop=tuple(draw(st.lists(TEXTS, max_size=2, unique=True))),
        sampling=Sampling(temperature=draw(NUMBERS), top_p=draw(NUMBERS)),
        document=draw(st.none() | st.just(document)),
        user=draw(st.just("") | NAMES),
    )


def alike(conversation: Conversation) -> Conversation:
    """What any two ways of saying the same have in common: paths and losses are left out, turns of
    one role joined, results put first, JSON spelled one way, a choice of tools that nobody made is
    the model's, and thoughts are shown."""
    turns: list[Turn] = []
    for turn in conversation.turns:
        parts = tuple(bare(part) for part in turn.parts)
        if turns and turns[-1].role == turn.role:
            parts = (*turns.pop().parts, *parts)
        ordered = sorted(parts, key=lambda part: not isinstance(part, ResultPart))
        turns.append(Turn(where="", role=turn.role, parts=tuple(ordered), name=turn.name))
    document, thinking = conversation.document, conversation.thinking
    return replace(
        conversation,
        turns=tuple(turns),
        system=tuple(replace(part, where="") for part in conversation.system),
        tools=tuple(replace(tool, where="") for tool in conversation.tools),
        tool_choice=conversation.tool_choice or ToolChoice(mode="auto"),
        document=None if document is None else replace(document, where="", name=""),
        thinking=None if thinking is None else alike_thinking(thinking),
        losses=(),
    )


def alike_thinking(thinking: Thinking) -> Thinking:
    """Thoughts are shown unless they are to be hidden."""
    shown = thinking.shown if thinking.on is False else thinking.shown is not False
    return replace(thinking, where="", shown=shown)


def bare(part: Part) -> Part:
    """A part without its path."""
    match part:
        case CallPart():
            arguments = json.dumps(json.loads(part.arguments), sort_keys=True)
            return replace(part, where="", arguments=arguments)
        case ResultPart():
            return replace(part, where="", parts=tuple(replace(p, where="") for p in part.parts))
        case _:
            return replace(part, where="")


def joined(conversation: Conversation) -> Conversation:
    """The same with the texts of each turn, each result and the instructions in one piece, as
    chat completions have them."""

    def together(parts: Iterable[Part], between: str) -> tuple[Part, ...]:
        done: list[Part] = []
        for part in parts:
            last = done[-1] if done else None
            if isinstance(part, TextPart) and isinstance(last, TextPart):
                done[-1] = replace(last, text=last.text + between + part.text)
            elif isinstance(part, ResultPart):
                inner = together(part.parts, "\n\n")
                simple = tuple(p for p in inner if isinstance(p, TextPart | MediaPart))
                done.append(replace(part, parts=simple))
            else:
                done.append(part)
        return tuple(done)

    system = "\n\n".join(part.text for part in conversation.system)
    return replace(
        conversation,
        system=(TextPart(where="", text=system),) if system else (),
        turns=tuple(
            replace(turn, parts=together(turn.parts, "" if turn.role == "assistant" else "\n\n"))
            for turn in conversation.turns
        ),
    )
