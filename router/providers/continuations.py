"""How a continuation is asked for: which style is really used, and what it makes of a request.

What is the same in every format stands here: when a style gives way to another, what an echo would
repeat, what is taken off the client's budget. How each format writes it down is a
`ContinuationWriter`, one per format. The client's own messages are shared, never copied or changed;
its system prompt is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.core.continuation import Continuation, ContinuationStyle, SchemaWithPrefix, Style
from router.core.conversation import Loss
from router.core.request import ChatRequest, Format
from router.providers import continue_anthropic, continue_gemini, continue_openai
from router.providers.base import Sent
from router.providers.nudge import nudge
from router.providers.translate import MESSAGES
from router.providers.writing import ContinuationWriter

WRITERS: Mapping[Format, ContinuationWriter] = {
    Format.OPENAI: continue_openai.WRITER,
    Format.ANTHROPIC: continue_anthropic.WRITER,
    Format.GEMINI: continue_gemini.WRITER,
}
"""Who writes a continuation in a format."""


def constrained(request: ChatRequest) -> bool:
    """The request asks for output that follows a schema or a grammar.

    Args:
        request: in the target's format.
    """
    return _document(request) != "text" or WRITERS[request.format].constrained(request.raw)


def _document(request: ChatRequest) -> str:
    return str((request.response_format or {}).get("type", "text"))


def effective_style(request: ChatRequest, continuation: Continuation) -> Style:
    """The style that is really used: what the splice has to expect.

    A target whose schema and prefix do not mix (`schema: refuse`) restarts constrained output; its
    answer is then aligned with what is committed. A prefix of white space alone is refused by some
    servers and says nothing to the others, so the original request is sent.

    Args:
        request: in the target's format.
        continuation: how, and after what.
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

    Args:
        request: in the target's format.
        continuation: how, and after what.
    """
    text = WRITERS[request.format].tail_text(request) + continuation.prefix
    return text.rstrip() if continuation.how.rstrip_prefix else text


def sent(request: ChatRequest, continuation: Continuation) -> Sent:
    """What becomes of a continuation, for the splice.

    Args:
        request: in the target's format.
        continuation: how, and after what.
    """
    style = effective_style(request, continuation)
    if style is Style.RESTART:
        return Sent(style=style, prefix=continuation.prefix)
    return Sent(style=style, prefix=sent_prefix(request, continuation))


def apply(
    body: dict[str, Any],
    request: ChatRequest,
    continuation: Continuation,
    *,
    schema_types: frozenset[str],
) -> Style:
    """Turn a request body into one that goes on after what is committed.

    Args:
        body: the body to send, a shallow copy of the request's; changed in place.
        request: in the target's format.
        continuation: how, and after what.
        schema_types: `response_format` types that the server can combine with a prefix.

    Returns:
        The style that was written. `RESTART` leaves the body as it is, its token budget too.

    Raises:
        ValueError: the target's style is `none`, so it must not be asked to continue.
    """
    style = effective_style(request, continuation)
    if style is Style.NONE:
        raise ValueError("A target of style `none` was asked to continue.")
    if style is Style.RESTART:
        return style
    writer = WRITERS[request.format]
    writer.begun(body, request, continuation, style)
    if style is Style.INSTRUCT:
        writer.ask(body, _nudge(request, continuation))
    if continuation.how.schema is SchemaWithPrefix.DROP:
        writer.loosen(body, every=True)
    elif _document(request) not in schema_types | {"text"}:
        writer.loosen(body, every=False)
    if continuation.how.disable_thinking is not None:
        _patch(body, continuation.how.disable_thinking)
    # What is committed was paid for: it is taken off the client's budget.
    writer.spend(body, continuation.spent_tokens)
    return style


def go_on(
    body: dict[str, Any], request: ChatRequest, client: ChatRequest, how: ContinuationStyle
) -> tuple[Loss, ...]:
    """A client ended its request with a message of the assistant, as the beginning of the answer,
    and the target speaks another format.

    Where a target does not go on with such a message by itself, it is asked in words: it would
    refuse the request, or answer afresh. Flags are for continuations, whose echo is looked for.

    Args:
        body: the body to send, a shallow copy of the request's; changed in place.
        request: in the target's format.
        client: the same in the client's; nothing is done where the formats are one.
        how: how the target continues.

    Returns:
        What could not be told, or not in the client's way.
    """
    writer = WRITERS[request.format]
    text = "" if client.format is request.format else writer.tail_text(request)
    if not text.strip():
        return ()
    where = f"messages[{len(client.messages) - 1}]"
    if how.style is not Style.ASSISTANT_TAIL:
        field = MESSAGES[request.format]
        body[field] = list(body[field])
        writer.ask(body, nudge(text, in_fence=None, structured=constrained(request)))
        message = "This model is asked in words to go on with the last message."
        return (Loss(param=where, message=message, hint=True),)
    before = dict(body)
    if how.schema is SchemaWithPrefix.DROP:
        writer.loosen(body, every=True)
    if how.disable_thinking is not None:
        _patch(body, how.disable_thinking)
    if body == before:
        return ()
    message = "This model goes on with a message neither after thinking nor by a schema."
    return (Loss(param=where, message=message, hint=True),)


def _patch(body: dict[str, Any], patch: Mapping[str, Any]) -> None:
    patched = merge_patch(body, patch)
    body.clear()  # a patch may also remove a field
    body.update(patched)


def _nudge(request: ChatRequest, continuation: Continuation) -> str:
    return nudge(
        continuation.prefix,
        in_fence=continuation.in_fence,
        structured=constrained(request),
        violation=continuation.violation,
    )


def merge_patch(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """RFC 7396 JSON merge patch of an object; neither argument is changed.

    Args:
        target: what is patched.
        patch: what replaces, and with null removes.
    """
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
