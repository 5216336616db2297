"""How one target continues: the family's default for its model, and what the configuration says.

Three words, the later one stronger: the family's row, the first of the provider's own rules that
fits the model's name, the target's `continuation`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from router import config
from router.core.continuation import ContinuationStyle, Echo, SchemaWithPrefix, Style
from router.core.request import Format
from router.providers.registry import FAMILIES, PREFILL_STYLES, Family

_ANYWHERE = frozenset({Style.ASSISTANT_TAIL, Style.INSTRUCT, Style.RESTART, Style.NONE})

STYLES: Mapping[Format, frozenset[Style]] = {
    Format.OPENAI: frozenset(Style),
    Format.ANTHROPIC: _ANYWHERE,
    Format.GEMINI: _ANYWHERE,
}
"""The styles that a format can say; the others put fields of chat completions into a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationOverrides:
    """What a configuration says about continuation; None leaves what was there.

    Args:
        style: one of the seven.
        echo: does the answer repeat the prefix.
        rstrip_prefix: remove trailing white space from the prefix.
        disable_thinking: True for the family's own way, False for none, a mapping for a JSON merge
            patch of one's own.
        schema: what becomes of `response_format`.
    """

    style: Style | None = None
    echo: Echo | None = None
    rstrip_prefix: bool | None = None
    disable_thinking: bool | Mapping[str, Any] | None = None
    schema: SchemaWithPrefix | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationRule:
    """What a configuration says about a provider's models of some names.

    Args:
        models: pattern for the whole name, case ignored: `*` is any text, `?` any one character.
        overrides: what is said of them.
    """

    models: str
    overrides: ContinuationOverrides = field(default_factory=ContinuationOverrides)

    def fits(self, model: str) -> bool:
        """The name is one of those.

        Args:
            model: as it is sent to the provider.
        """
        pattern = "".join(_JOKERS.get(char) or re.escape(char) for char in self.models)
        return re.fullmatch(pattern, model, re.IGNORECASE) is not None


_JOKERS: Mapping[str, str] = {"*": ".*", "?": "."}


def resolve(
    family: Family,
    model: str,
    overrides: ContinuationOverrides,
    rules: Sequence[ContinuationRule] = (),
) -> ContinuationStyle:
    """A target's continuation.

    Args:
        family: its row of the registry.
        model: the name as it is sent to the provider.
        overrides: what the target's configuration says.
        rules: what the provider's says, by model name; the first that fits counts.

    Raises:
        ValueError: a style that the family's format cannot say, or `disable_thinking: true` for a
            family whose way of doing it is not known. A sentence.
    """
    how = family.how_for(model)
    rule = rule_for(model, rules)
    if rule is not None:
        how = _override(family, how, rule.overrides)
    return _override(family, how, overrides)


def rule_for(model: str, rules: Sequence[ContinuationRule]) -> ContinuationRule | None:
    """The rule that counts for a model, or None.

    Args:
        model: as it is sent to the provider.
        rules: in order; the first that fits counts.
    """
    return next((rule for rule in rules if rule.fits(model)), None)


def _override(
    family: Family, how: ContinuationStyle, said: ContinuationOverrides
) -> ContinuationStyle:
    """A style that is chosen away from what was there keeps no knob that described the join there:
    `echo` returns to `auto`, and thinking is switched off only where a prefix is prefilled."""
    if said.style is not None and said.style is not how.style:
        if said.style not in STYLES[family.format]:
            raise ValueError(
                f"The style {said.style.value!r} is a field of chat completions, which "
                f"{family.label} does not speak; use "
                f"{', '.join(sorted(STYLES[family.format]))}."
            )
        how = replace(
            how,
            style=said.style,
            echo=Echo.AUTO,
            disable_thinking=how.disable_thinking if said.style in PREFILL_STYLES else None,
        )
    changes: dict[str, Any] = {
        name: value
        for name in ("echo", "rstrip_prefix", "schema")
        if (value := getattr(said, name)) is not None
    }
    if said.disable_thinking is not None:
        changes["disable_thinking"] = _thinking(family, said.disable_thinking)
    return replace(how, **changes)


def _thinking(family: Family, wanted: bool | Mapping[str, Any]) -> dict[str, Any] | None:
    if wanted is True:
        if family.thinking_off is None:
            raise ValueError(
                f"How {family.label} switches thinking off is not known; "
                "give the fields as a mapping, such as {reasoning_effort: none}."
            )
        return dict(family.thinking_off)
    return dict(wanted) if isinstance(wanted, Mapping) else None


def downgraded(how: ContinuationStyle) -> ContinuationStyle:
    """The style of a target whose server refused the prefix: `instruct`, for this stream.

    The thinking patch goes too: it belonged to the prefill, and may be what was refused.

    Args:
        how: its own style.
    """
    return replace(how, style=Style.INSTRUCT, echo=Echo.AUTO, disable_thinking=None)


# -- From the configuration's words ----------------------------------------------------------------


def overrides_in(said: config.Continuation) -> ContinuationOverrides:
    """A configuration's `continuation`, or one of its `continuation_rules`.

    Args:
        said: the section.
    """
    return ContinuationOverrides(
        style=said.style,
        echo=said.echo,
        rstrip_prefix=said.rstrip_prefix,
        disable_thinking=said.disable_thinking,
        schema=said.schema_with_prefix,
    )


def rules_in(provider: config.Provider) -> tuple[ContinuationRule, ...]:
    """A provider's own rules.

    Args:
        provider: its section.
    """
    return tuple(
        ContinuationRule(models=rule.models, overrides=overrides_in(rule))
        for rule in provider.continuation_rules
    )


def configured(whole: config.Config, target: config.Target) -> ContinuationStyle:
    """How a target of a configuration continues.

    Args:
        whole: the configuration.
        target: one of its targets.
    """
    provider = whole.providers[target.provider]
    return resolve(
        FAMILIES[provider.type],
        target.model,
        overrides_in(target.continuation),
        rules_in(provider),
    )
