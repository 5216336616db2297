"""What clients ask for, in both formats: a row for each thing that another may not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from router.core.request import Format
from router.providers.base import Provider
from router.providers.make import make_provider

Fields: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Row:
    """Something that a client may ask for.

    Args:
        what: of the page's first column.
        fields: of a request that asks for it.
        beside: fields that the same request has without it.
        unless: fields that ask for the contrary: where a request for it is the same as one without
            it, and not the same as one for the contrary, silence says it.
        headers: of a request that asks for it.
    """

    what: str
    fields: Fields = field(default_factory=dict)
    beside: Fields = field(default_factory=dict)
    unless: Fields = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """A column.

    Args:
        family: a `type` of the configuration.
        model: its name.
        base_url: where the family has none.
    """

    family: str
    model: str
    base_url: str | None = None

    def provider(self, base_url: str | None = None) -> Provider:
        """Its provider.

        Args:
            base_url: of another server than its own.
        """
        return make_provider(
            type=self.family, base_url=base_url or self.base_url, api_key=None, model=self.model
        )


TARGETS: Final = (
    Target("openai", "gpt-5.2"),
    Target("anthropic", "claude-sonnet-4-6"),
    Target("gemini", "gemini-3.5-flash"),
)
"""One of each format, that takes most of what its format can say."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of one kind, asked for in one format.

    Args:
        client: the format.
        title: on the page.
        rows: in order.
        targets: the columns.
    """

    client: Format
    title: str
    rows: tuple[Row, ...]
    targets: tuple[Target, ...] = TARGETS


SMALLEST: Final[Mapping[Format, Fields]] = {
    Format.OPENAI: {"messages": [{"role": "user", "content": "Hi."}]},
    Format.ANTHROPIC: {
        "messages": [{"role": "user", "content": "Hi."}],
        "max_tokens": 16_000,
    },
}
"""A request that asks for nothing in particular; the model's name comes to it."""

PIXEL: Final = "iVBORw0KGgo="
PDF: Final = "JVBERi0xLjQ="
PLAIN: Final = "QSBub3RlLg=="
SOUND: Final = "SUQzBAA="
SIGNATURE: Final = "c2lnbmVk"

OPEN: Final[Fields] = {"type": "object", "properties": {"city": {"type": "string"}}}
CLOSED: Final[Fields] = OPEN | {"required": ["city"], "additionalProperties": False}
ANYTHING: Final[Fields] = {"type": "object", "additionalProperties": {"type": "string"}}


def value(name: str, asked: object, *, what: str = "", beside: Fields | None = None) -> Row:
    """A field of the body."""
    shown = f'"{asked}"' if isinstance(asked, str) else str(asked).lower()
    label = what or f"`{name}: {shown}`"
    return Row(what=label, fields={name: asked}, beside=beside or {})


HI: Final[Fields] = {"role": "user", "content": "Hi."}
MORE: Final[Fields] = {"role": "user", "content": "Go on."}
LOOK: Final[Fields] = {"type": "text", "text": "Look."}


def part(what: str, **part: Any) -> Row:  # noqa: ANN401 - JSON
    """A part beside a text."""
    return Row(
        what=what,
        fields={"messages": [{"role": "user", "content": [LOOK, part]}]},
        beside={"messages": [{"role": "user", "content": [LOOK]}]},
    )


ON, OFF = ({"thinking": {"type": word}} for word in ("enabled", "disabled"))
