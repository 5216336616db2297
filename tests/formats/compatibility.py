"""Measures what becomes of a request's fields on the way to each format, and writes it down.

`make compatibility` writes the tables of `docs/compatibility.md` anew; its prose is written there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final, TypeAlias

from formats.compatibility_chat import CHAT
from formats.compatibility_messages import MESSAGES
from formats.compatibility_models import CLAUDES, GEMINIS, GPTS, SERVERS
from formats.compatibility_rows import SMALLEST, Row, Table

from router.core.conversation import Loss
from router.core.request import ChatRequest, Format
from router.errors import RequestError
from router.providers.base import Provider
from router.wire.anthropic.request import parse_messages_request
from router.wire.openai.request import parse_chat_request

Json: TypeAlias = Any
Change: TypeAlias = tuple[str, Json]
"""Path of a field, and its value; `GONE` where it was and is not."""

PAGE: Final = Path(__file__).parents[2] / "docs" / "compatibility.md"
GONE: Final = object()
ROUTE: Final = "chat"

BLOCKS: Final[Mapping[str, tuple[Table, ...]]] = {
    "chat completions": CHAT,
    "messages": MESSAGES,
    "claude": (CLAUDES,),
    "gemini": (GEMINIS,),
    "gpt": (GPTS,),
    "servers": (SERVERS,),
}
"""What stands between which marks of the page."""


# -- What is measured ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What becomes of something that was asked for.

    Args:
        word: `same`, `told` (in other words), `default` (silence says it), `left out`,
            `passed over`, `router` (its own business), `refused` (by the router itself), or
            `silent`, which must not be.
        changes: of the body that is sent.
        losses: that were told.
        error: the router's refusal.
    """

    word: str
    changes: tuple[Change, ...] = ()
    losses: tuple[Loss, ...] = ()
    error: RequestError | None = None


PARSERS: Final[Mapping[Format, Callable[[bytes, Mapping[str, str]], ChatRequest]]] = {
    Format.OPENAI: lambda body, _headers: parse_chat_request(body),
    Format.ANTHROPIC: parse_messages_request,
}


def body_of(client: Format, row: Row, *, route: str = ROUTE) -> dict[str, Json]:
    """A client's body that asks for a row's fields.

    Args:
        client: its format.
        row: what it asks for.
        route: the model that it names.
    """
    return {"model": route, **SMALLEST[client], **row.beside, **row.fields}


def parse(client: Format, row: Row) -> ChatRequest:
    """A request that asks for a row's fields.

    Args:
        client: its format.
        row: what it asks for.

    Raises:
        RequestError: the router refuses it.
    """
    return PARSERS[client](json.dumps(body_of(client, row)).encode(), row.headers)


def measure(client: Format, row: Row, provider: Provider) -> Outcome:
    """Ask for something, and for all else that the same request has; what differs is its outcome.

    Args:
        client: whose words the row is in.
        row: what is asked for.
        provider: who is asked.
    """
    plain = parse(client, replace(row, fields={}, headers={}))
    try:
        asked = parse(client, row)
        losses = provider.losses(asked)
    except RequestError as exc:
        return Outcome(word="refused", error=exc)
    before = provider.losses(plain)
    losses = tuple(loss for loss in losses if loss not in before or not loss.hint)
    changes = tuple(_changes(_sent(provider, plain), _sent(provider, asked)))
    if any(not loss.hint for loss in losses):
        word = "passed over"
    elif changes:
        as_said = _changes(_said(plain), _said(asked))
        word = "same" if _same(changes, as_said) and not losses else "told"
    elif losses:
        word = "left out"
    else:
        word = _unsaid(client, row, provider, plain, asked)
    return Outcome(word=word, changes=changes, losses=losses)


def _unsaid(
    client: Format, row: Row, provider: Provider, plain: ChatRequest, asked: ChatRequest
) -> str:
    """It is neither sent nor lost."""
    if _own(plain) != _own(asked):
        return "router"
    contrary = parse(client, replace(row, fields=row.unless, headers={}))
    differs = _sent(provider, contrary) != _sent(provider, asked) or provider.losses(contrary)
    return "default" if row.unless and differs else "silent"


def _own(request: ChatRequest) -> ChatRequest:
    """What the router itself goes by."""
    return replace(request, raw={}, messages=(), headers=(), translations={})


def _same(one: Iterable[Change], other: Iterable[Change]) -> bool:
    return sorted(map(_key, one)) == sorted(map(_key, other))


def _key(change: Change) -> str:
    path, value = change
    return f"{path} {'gone' if value is GONE else _text(value)}"


def _text(value: Json) -> str:
    return json.dumps(value, sort_keys=True)


def _sent(provider: Provider, request: ChatRequest) -> Json:
    upstream = provider.build(request, None)
    headers = dict(upstream.headers)
    told = {name: headers[name] for name in ("anthropic-beta",) if name in headers}
    return _plain({**json.loads(upstream.body), "headers": told})


def _said(request: ChatRequest) -> Json:
    return _plain({**request.raw, "headers": dict(request.headers)})


def _plain(value: Json) -> Json:
    """A body in which text is always a list of parts, so that one more part is one difference."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    plain = {name: _plain(one) for name, one in value.items()}
    content = plain.get("content")
    if isinstance(content, str) and ("role" in plain or plain.get("type") == "tool_result"):
        plain["content"] = [{"type": "text", "text": content}]
    return plain


def _changes(before: Json, after: Json, path: str = "") -> Iterator[Change]:
    """The least fields that differ."""
    if before == after:
        return
    if isinstance(after, dict) and after and not (path.endswith("]") and before is GONE):
        if path.rpartition(".")[2] in _SCHEMAS:
            yield path, after
            return
        old = before if isinstance(before, dict) else {}
        for name in {**old, **after}:
            deeper = f"{path}.{name}" if path else name
            yield from _changes(old.get(name, GONE), after.get(name, GONE), deeper)
    elif isinstance(after, list) and isinstance(before, list):
        yield from _list_changes(before, after, f"{path}[]")
    else:
        yield path, after


def _list_changes(before: list[Json], after: list[Json], path: str) -> Iterator[Change]:
    matcher = SequenceMatcher(a=[*map(_text, before)], b=[*map(_text, after)], autojunk=False)
    for _, start, end, at, to in matcher.get_opcodes():
        both = min(end - start, to - at)
        for one, other in zip(before[start:end], after[at:to], strict=False):
            yield from _changes(one, other, path)
        yield from ((path, GONE) for _ in before[start + both : end])
        yield from ((path, one) for one in after[at + both : to])


_SCHEMAS: Final = frozenset({"input_schema", "parameters", "responseJsonSchema", "schema"})


# -- How it is shown -------------------------------------------------------------------------------

MAX_SHOWN_CHARS: Final = 24
"""Of a value; where it is longer only its field is named."""
_WITHIN: Final = re.compile(
    r"^(?:(?:messages|contents)(?:\.(?:content|parts))*"
    r"|generationConfig(?:\.thinkingConfig)?|toolConfig\.functionCallingConfig)\."
)
"""Where a field stands, if that is left out: of messages, and of Gemini's settings."""


class Notes:
    """The notes under a table, each once."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, texts: Iterable[str]) -> str:
        """The numbers of some notes, or nothing."""
        said = dict.fromkeys(texts)
        self.texts += [text for text in said if text not in self.texts]
        numbers = ", ".join(str(self.texts.index(text) + 1) for text in said)
        return f"<sup>{numbers}</sup>" if numbers else ""


def cell(outcome: Outcome, notes: Notes) -> str:
    """An outcome as the page has it.

    Args:
        outcome: as it was measured.
        notes: those of its table.
    """
    shown = {
        "told": ", ".join(dict.fromkeys(_shown(outcome.changes))),
        "default": "the default",
        "router": "the router's own",
        "refused": "400",
        "silent": "**lost**",
    }.get(outcome.word, outcome.word)
    told = [loss.message for loss in outcome.losses]
    if outcome.error is not None:
        told.append(outcome.error.message)
    return shown + notes.mark(told)


def _shown(changes: Iterable[Change]) -> Iterator[str]:
    for path, value in changes:
        field = _WITHIN.sub("", path.replace("[]", ""))
        if value is GONE:
            yield from [f"one less of `{field}`"] if path.endswith("]") else []
        elif isinstance(value, dict) and path.endswith("]"):
            yield from (f"`{kind}`" for kind in _kinds(value))
        elif field == "text":
            yield "`text`"
        else:
            said = json.dumps(value, ensure_ascii=False)
            short = len(said) <= MAX_SHOWN_CHARS and "{" not in said
            yield f"`{field}: {said}`" if short else f"`{field}`"


def _kinds(part: Json) -> Iterator[str]:
    """What a message, a block or a part is, in its format's own word."""
    if "role" not in part:
        yield part.get("type") or next(iter(part))
        return
    if part["role"] in ("system", "developer", "tool"):
        yield f'role: "{part["role"]}"'
        return
    if "tool_calls" in part:
        yield "tool_calls"
    for inner in part.get("content") or part.get("parts") or ():
        yield from _kinds(inner)


def render(table: Table) -> str:
    """A table, and its notes.

    Args:
        table: of the page.
    """
    notes = Notes()
    providers = [target.provider() for target in table.targets]
    formats = {provider.format for provider in providers}
    names = [
        provider.format.value if len(formats) > 1 else target.model
        for target, provider in zip(table.targets, providers, strict=True)
    ]
    if table.title == "Servers":
        names = [target.family for target in table.targets]
    lines = [
        _line(["", *(f"`{name}`" for name in names)]),
        _line(["---"] * (len(names) + 1)),
    ]
    for row in table.rows:
        cells = [cell(measure(table.client, row, provider), notes) for provider in providers]
        lines.append(_line([row.what, *cells]))
    said = [f"{number}. {text}" for number, text in enumerate(notes.texts, 1)]
    return "\n".join([*lines, *([""] if said else []), *said])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def renewed(page: str) -> str:
    """The page with the tables as they are measured now.

    Args:
        page: as it stands, with its marks.
    """
    for name, tables in BLOCKS.items():
        parts = [
            f"### {table.title}\n\n{render(table)}" if len(tables) > 1 else render(table)
            for table in tables
        ]
        begin, end = f"<!-- measured: {name} -->\n", "<!-- end -->"
        before, found, rest = page.partition(begin)
        if not found:
            raise ValueError(f"The page has no mark {begin.strip()!r}.")
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{chr(10).join(part + chr(10) for part in parts)}\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text("utf-8")), "utf-8")
