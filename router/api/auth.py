"""Who may ask: API keys, in the headers of either family of clients."""

from __future__ import annotations

from collections.abc import Mapping

from router.api.serving import Generation
from router.errors import RequestError


def authorize(generation: Generation, headers: Mapping[str, str]) -> str:
    """Let a request in.

    Args:
        generation: whose keys count.
        headers: of the request, names in lower case.

    Returns:
        Hex digest of its API key, "" where no key is asked for.

    Raises:
        RequestError: 401.
    """
    owner = generation.settings.owner_of(headers.get("authorization"))
    if owner is None and "x-api-key" in headers:  # Anthropic's clients send it so
        owner = generation.settings.owner_of(f"Bearer {headers['x-api-key']}")
    if owner is None:
        raise RequestError(
            "The API key is missing or not known here. Send one of server.api_keys as "
            "'Authorization: Bearer <key>' or 'x-api-key: <key>'.",
            status=401,
            code="invalid_api_key",
            headers=(("www-authenticate", "Bearer"),),
        )
    return owner
