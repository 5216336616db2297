"""Continuation: how the next target is asked to go on. Words only; `wire/` writes them down."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Style(StrEnum):
    """The seven continuation styles (`docs/continuation.md`)."""

    ASSISTANT_TAIL = "assistant_tail"
    """The committed text as a bare trailing assistant message."""
    PREFIX_FLAG = "prefix_flag"
    """The same with `"prefix": true` on that message."""
    PARTIAL_FLAG = "partial_flag"
    """The same with `"partial": true`."""
    CONTINUE_FINAL = "continue_final"
    """The same, plus top-level `continue_final_message: true, add_generation_prompt: false`."""
    INSTRUCT = "instruct"
    """The committed text as an assistant message, then a user message that asks for the rest."""
    RESTART = "restart"
    """The original request; its output is aligned with what is committed."""
    NONE = "none"
    """Never continues: serves only requests of which nothing is committed."""


class Echo(StrEnum):
    """Does the answer repeat the prefix?"""

    NEVER = "never"
    ALWAYS = "always"
    AUTO = "auto"


class SchemaWithPrefix(StrEnum):
    """Is `response_format` sent along with a prefix?"""

    KEEP = "keep"
    DROP = "drop"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationStyle:
    """How one target continues: its family's default with the configuration's overrides.

    Args:
        style: one of the seven.
        echo: whether the answer repeats the prefix.
        rstrip_prefix: remove trailing white space from the prefix before it is sent.
        disable_thinking: JSON merge patch that switches thinking off in a continuation, such as
            `{"thinking": {"type": "disabled"}}`; None leaves it as the client asked.
        schema: what becomes of `response_format`.
    """

    style: Style = Style.INSTRUCT
    echo: Echo = Echo.AUTO
    rstrip_prefix: bool = False
    disable_thinking: dict[str, object] | None = None
    schema: SchemaWithPrefix = SchemaWithPrefix.REFUSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """One request to go on.

    Args:
        how: the target's style and knobs.
        prefix: the committed text, never empty (with nothing committed, the original is sent).
        in_fence: info string of the code fence that the prefix ends inside ("" for a bare fence),
            or None when it ends in prose.
        spent_tokens: output tokens that the prefix has cost, estimated; to be subtracted from the
            client's token budget.
        violation: what was wrong with the last attempt's next value, or "": a style with words in
            it may say so.
    """

    how: ContinuationStyle
    prefix: str
    in_fence: str | None = None
    spent_tokens: int = 0
    violation: str = ""
