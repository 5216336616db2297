"""What every adapter needs to write an HTTP request: the address, the headers, the encoded body."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from router import __version__
from router.core.continuation import ContinuationStyle
from router.providers.classify import Classifier
from router.providers.redact import Redactor
from router.providers.registry import Family

ROUTER_FIELDS = frozenset({"router"})
"""Top-level fields that are the router's own and mean nothing to a provider."""

_SECRET_HEADERS = ("authorization", "cookie", "key", "token", "secret")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the configuration says of one target, as every adapter gets it.

    Args:
        family: its row of the registry.
        base_url: root of the API.
        model: the name the server knows.
        continuation: the target's style and knobs.
        api_key: credential, or None to send none.
        headers: further request headers; they win over the router's own.
        api_version: Azure's `api-version`, "" for none.
    """

    family: Family
    base_url: str
    model: str
    continuation: ContinuationStyle
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_version: str = ""

    def sent_headers(self) -> tuple[tuple[str, str], ...]:
        """All headers of a request for a stream, credentials included.

        Raises:
            ValueError: one of them could not be sent. A sentence that shows no value.
        """
        family = self.family
        headers = {
            "content-type": ("Content-Type", "application/json"),
            "accept": ("Accept", "text/event-stream"),
            # A compressed stream arrives in lumps, and would have to be undone before it is read.
            "accept-encoding": ("Accept-Encoding", "identity"),
            "user-agent": ("User-Agent", f"seam-router/{__version__}"),
        }
        headers.update({name.lower(): (name, value) for name, value in family.headers.items()})
        if self.api_key:
            scheme = f"{family.auth_scheme} " if family.auth_scheme else ""
            headers[family.auth_header.lower()] = (family.auth_header, scheme + self.api_key)
        headers.update({name.lower(): (name, value) for name, value in self.headers.items()})
        for name, value in headers.values():
            if not name or not is_header_value(value):
                # The value is not shown: it may be the credential.
                raise ValueError(
                    f"The value of the header {name!r} cannot be sent: it must be ASCII "
                    "without line breaks or other control characters."
                )
        return tuple(headers.values())

    def classifier(self) -> Classifier:
        """The fault table, bound to this target: its family, and its secrets to be removed."""
        secrets = [self.api_key or "", *_secrets(self.headers)]
        return Classifier(family=self.family.name, redact=Redactor(secrets))


def is_header_value(value: str) -> bool:
    """It can be sent in a header as it is.

    Args:
        value: any text.
    """
    return value.isascii() and not any(ord(c) < 32 or ord(c) == 127 for c in value)


def _secrets(headers: Mapping[str, str]) -> list[str]:
    """Values of configured headers that look like credentials, with and without their scheme."""
    found: list[str] = []
    for name, value in headers.items():
        if any(word in name.lower() for word in _SECRET_HEADERS):
            found += [value, value.rpartition(" ")[2]]
    return found


def split_url(root: str) -> SplitResult:
    """The parts of a base URL.

    Args:
        root: as it was configured.

    Raises:
        ValueError: it is no HTTP URL. A sentence.
    """
    parts = urlsplit(root)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"The base_url {root!r} is not an http or https URL.")
    return parts


def encode(body: Mapping[str, Any]) -> bytes:
    """A request body as JSON.

    Args:
        body: of JSON types, as a client sent them.
    """
    try:
        return msgspec.json.encode(body)
    except (UnicodeEncodeError, OverflowError):
        # A lone surrogate, or an integer beyond 64 bits: legal in JSON, and the client's own.
        return json.dumps(body, ensure_ascii=True, separators=(",", ":")).encode("ascii")
