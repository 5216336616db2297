"""From a target's configuration to its provider: the adapter is the one of its family's format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from router.core.request import Format
from router.providers import anthropic, gemini, openai
from router.providers.base import Provider
from router.providers.http import Account
from router.providers.registry import FAMILIES
from router.providers.resolve import ContinuationOverrides, ContinuationRule, resolve

ADAPTERS: Mapping[Format, Callable[[Account], Provider]] = {
    Format.OPENAI: openai.make,
    Format.ANTHROPIC: anthropic.make,
    Format.GEMINI: gemini.make,
}
"""Who builds requests in a format and reads its answers."""


def make_provider(
    *,
    type: str,  # noqa: A002 - the configuration's own word
    base_url: str | None,
    api_key: str | None,
    model: str,
    headers: Mapping[str, str] | None = None,
    api_version: str | None = None,
    overrides: ContinuationOverrides | None = None,
    rules: Sequence[ContinuationRule] = (),
) -> Provider:
    """Make the provider of one target.

    Args:
        type: a family's name, a key of `registry.FAMILIES`.
        base_url: root of the API, or None for the family's default.
        api_key: credential, or None to send none.
        model: the name the server knows (at Azure the deployment's).
        headers: further request headers; they win over the router's own.
        api_version: Azure's `api-version`, or None for the family's default.
        overrides: what the target's configuration says about continuation.
        rules: what the provider's says about it, by model name.

    Raises:
        ValueError: the type is unknown, has no default base URL and none is given, the URL is no
            HTTP URL, a header or key could not be sent, or a knob cannot be honoured. A sentence.
    """
    family = FAMILIES.get(type)
    if family is None:
        raise ValueError(f"Unknown provider type {type!r}; known are {', '.join(FAMILIES)}.")
    root = base_url or family.base_url
    if root is None:
        raise ValueError(f"The provider type {type!r} has no default address; give a base_url.")
    account = Account(
        family=family,
        base_url=root,
        model=model,
        continuation=resolve(family, model, overrides or ContinuationOverrides(), rules),
        api_key=api_key,
        headers=headers or {},
        api_version=api_version or family.api_version,
    )
    return ADAPTERS[family.format](account)
