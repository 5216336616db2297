"""How each of the seven continuation styles is written down in an OpenAI-format request.

Pure functions from the client's request and what is committed to a new request body. The client's
own messages are shared, never copied or changed; its system prompt is never touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from router.core.continuation import Continuation, SchemaWithPrefix, Style
from router.core.request import ChatRequest

TAIL_CHARS = 100
"""How much of the committed text the nudge quotes: enough to be unique, too little to be echoed."""

VIOLATION_CHARS = 200
"""How much is said about a value that was refused: where it stood and what was wrong with it."""

BUDGET_FIELDS = ("max_tokens", "max_completion_tokens")
"""Where a client's token budget may stand; the one it used is the one that is sent."""

GRAMMAR_FIELDS = (
    "response_format",
    "guided_json",  # vLLM, older
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",  # vLLM, newer
    "json_schema",  # llama.cpp, SGLang
    "grammar",
    "regex",
    "ebnf",
)
"""Fields that constrain decoding: a grammar starts at its root, wherever the prefix may be."""

_FLAGS = ("prefix", "partial")
_FINAL_FLAGS = ("continue_final_message", "add_generation_prompt")


def constrained(request: ChatRequest) -> bool:
    """The request asks for output that follows a schema or a grammar."""
    kind = (request.response_format or {}).get("type", "text")
    return kind != "text" or any(name in request.raw for name in GRAMMAR_FIELDS[1:])


def effective_style(request: ChatRequest, continuation: Continuation) -> Style:
    """The style that is really used: what the splice has to expect.

    A target whose schema and prefix do not mix (`schema: refuse`) restarts constrained output; its
    answer is then aligned with what is committed. A prefix of white space alone is refused by some
    servers and says nothing to the others, so the original request is sent.
    """
    how = continuation.how
    if how.style is Style.NONE:
        return Style.NONE
    if how.schema is SchemaWithPrefix.REFUSE and constrained(request):
        return Style.RESTART
    return how.style if continuation.prefix.strip() else Style.RESTART


def sent_prefix(request: ChatRequest, continuation: Continuation) -> str:
    """The assistant text that the continuation request ends with: exactly what an echo repeats.

    The text of the client's own trailing assistant message comes first, if there is one; trailing
    white space is gone where the target asks for that.
    """
    tail = _client_tail(request)
    text = (_text_of(tail) if tail is not None else "") + continuation.prefix
    return text.rstrip() if continuation.how.rstrip_prefix else text


def apply(
    body: dict[str, Any],
    request: ChatRequest,
    continuation: Continuation,
    *,
    schema_types: frozenset[str],
) -> Style:
    """Turn a request body into one that goes on after what is committed.

    Args:
        body: the body to send, a shallow copy of the client's; changed in place.
        request: the client's request.
        continuation: how, and after what.
        schema_types: `response_format` types that the server can combine with a prefix.

    Returns:
        The style that was written. `RESTART` leaves the body as it is, its token budget too.

    Raises:
        ValueError: the target's style is `none`, so it must not be asked to continue.
    """
    style = effective_style(request, continuation)
    _WRITERS[style](body, request, continuation)
    if style is not Style.RESTART:
        _constrain(body, continuation.how.schema, schema_types)
        _spend(body, continuation.spent_tokens)
        if continuation.how.disable_thinking is not None:
            patched = merge_patch(body, continuation.how.disable_thinking)
            body.clear()  # a patch may also remove a field
            body.update(patched)
    return style


def merge_patch(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """RFC 7396 JSON merge patch of an object; neither argument is changed."""
    merged = dict(target)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            below = merged.get(name)
            merged[name] = merge_patch(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[name] = value
    return merged


# -- The trailing assistant message ----------------------------------------------------------------


def _client_tail(request: ChatRequest) -> Mapping[str, Any] | None:
    """The client's own prefill: a trailing assistant message that is text and not a tool call."""
    last = request.messages[-1]
    if last.get("role") != "assistant" or last.get("tool_calls") or last.get("function_call"):
        return None
    return last


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, Mapping))
    return "".join(text for text in texts if isinstance(text, str))


def _messages(request: ChatRequest, continuation: Continuation, **flags: bool) -> list[Any]:
    """The client's messages, then one assistant message with all that the answer has so far.

    A client that ended with an assistant message of its own gets one message, not two: the answer
    was its continuation, and most chat templates refuse two assistant turns in a row.
    """
    tail = _client_tail(request)
    if tail is None:
        before, message = list(request.messages), {"role": "assistant"}
    else:
        before = list(request.messages[:-1])
        message = {k: v for k, v in tail.items() if k not in _FLAGS}
    message["content"] = sent_prefix(request, continuation)
    return [*before, {**message, **flags}]


# -- The styles ------------------------------------------------------------------------------------


def _write_tail(
    body: dict[str, Any], request: ChatRequest, continuation: Continuation, **flags: bool
) -> None:
    for name in _FINAL_FLAGS:  # a client's own, for a trailing message that is no longer the last
        body.pop(name, None)
    body["messages"] = _messages(request, continuation, **flags)


def _write_prefix_flag(
    body: dict[str, Any], request: ChatRequest, continuation: Continuation
) -> None:
    _write_tail(body, request, continuation, prefix=True)


def _write_partial_flag(
    body: dict[str, Any], request: ChatRequest, continuation: Continuation
) -> None:
    _write_tail(body, request, continuation, partial=True)


def _write_continue_final(
    body: dict[str, Any], request: ChatRequest, continuation: Continuation
) -> None:
    _write_tail(body, request, continuation)
    body["continue_final_message"] = True
    body["add_generation_prompt"] = False


def _write_instruct(body: dict[str, Any], request: ChatRequest, continuation: Continuation) -> None:
    _write_tail(body, request, continuation)
    structured = constrained(request)
    text = nudge(
        continuation.prefix,
        in_fence=continuation.in_fence,
        structured=structured,
        violation=continuation.violation,
    )
    body["messages"].append({"role": "user", "content": text})


def _write_restart(
    _body: dict[str, Any], _request: ChatRequest, _continuation: Continuation
) -> None:
    """The original request, as it is."""


def _write_none(_body: dict[str, Any], _request: ChatRequest, _continuation: Continuation) -> None:
    raise ValueError("A target of style `none` was asked to continue.")


_WRITERS: Mapping[Style, Callable[[dict[str, Any], ChatRequest, Continuation], None]] = {
    Style.ASSISTANT_TAIL: _write_tail,
    Style.PREFIX_FLAG: _write_prefix_flag,
    Style.PARTIAL_FLAG: _write_partial_flag,
    Style.CONTINUE_FINAL: _write_continue_final,
    Style.INSTRUCT: _write_instruct,
    Style.RESTART: _write_restart,
    Style.NONE: _write_none,
}


def _constrain(
    body: dict[str, Any], schema: SchemaWithPrefix, schema_types: frozenset[str]
) -> None:
    wanted = body.get("response_format")
    kind = wanted.get("type", "text") if isinstance(wanted, Mapping) else "text"
    if schema is SchemaWithPrefix.DROP:
        for name in GRAMMAR_FIELDS:
            body.pop(name, None)
    elif kind not in schema_types and kind != "text":
        del body["response_format"]


def _spend(body: dict[str, Any], spent_tokens: int) -> None:
    """What is committed was paid for: take it off the client's budget, and leave at least one."""
    for name in BUDGET_FIELDS:
        budget = body.get(name)
        if isinstance(budget, int) and not isinstance(budget, bool):
            body[name] = max(budget - spent_tokens, 1)


# -- The nudge of `instruct` -----------------------------------------------------------------------

_SENTENCE_END = re.compile(r"[.?!…。！？]['\"”’»)\]*_`]*\Z")
_LIST_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,4}[.)])\s")


# Where a free text can stop, what tells it (last line, whole text), and what the first words to
# come should do about it. The first row that holds is taken.
_PLACES: tuple[tuple[Callable[[str, str], object], str, str], ...] = (
    (
        lambda line, _: line.startswith("|"),
        "inside a table",
        "Go on with the next row; do not write its head again.",
    ),
    (
        lambda _, text: text.endswith("\n\n"),
        "between two paragraphs",
        "Go on with the next paragraph.",
    ),
    (
        lambda line, _: _LIST_ITEM.match(line),
        "inside a list",
        "Keep to the list's form and numbering.",
    ),
    (lambda _, text: text.endswith("\n"), "at the end of a line", "Go on with the next line."),
    (
        lambda _, text: _SENTENCE_END.search(text[-TAIL_CHARS:].rstrip()),
        "at the end of a sentence",
        "Go on with the next sentence.",
    ),
    (
        lambda _line, _text: True,
        "in the middle of a sentence",
        "Go on in the middle of that sentence.",
    ),
)


def _place(prefix: str, in_fence: str | None, *, structured: bool) -> tuple[str, str]:
    if structured:
        return "inside a JSON document", "Go on with its next characters; do not start it again."
    if in_fence is not None:
        return (
            f"inside a ```{in_fence} code block",
            "Go on with the next line of the code; the block is already open, so do not open it.",
        )
    line = prefix.rstrip("\n").rpartition("\n")[2]
    return next((where, then) for holds, where, then in _PLACES if holds(line, prefix))


def _bounded(clause: str) -> str:
    line = " ".join(clause.split()).rstrip(".")
    return line if len(line) <= VIOLATION_CHARS else f"{line[: VIOLATION_CHARS - 1]}…"


def nudge(
    prefix: str, *, in_fence: str | None, structured: bool = False, violation: str = ""
) -> str:
    """The user message that asks for the rest of an interrupted answer and for nothing else.

    Args:
        prefix: the committed text.
        in_fence: info string of the code block that it ends inside, or None.
        structured: it is the beginning of a structured answer.
        violation: why what was written after it could not be kept, a clause, or "".
    """
    where, then = _place(prefix, in_fence, structured=structured)
    # JSON keeps quotation marks, line ends and white space of the tail readable and unambiguous.
    tail = json.dumps(prefix[-TAIL_CHARS:], ensure_ascii=False)
    why = f" What came next could not be kept: {_bounded(violation)}." if violation else ""
    return (
        "Your answer above was interrupted before it was finished. "
        f"As a JSON string, it ends with {tail}. It stops {where}.{why}\n\n"
        "Write only the text that comes after that, so that both parts read as one answer in the "
        f"same language, tone and format. {then} Do not repeat anything that is already written. "
        "Add no introduction, no apology and no remark about the interruption."
    )
