"""Structured output in every client format, by every provider: asked for, cut, finished elsewhere.

What reaches a client is always a valid document, whoever wrote its parts.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from support.continuity import FULL
from support.pairs import CLIENTS, FAMILIES, PAIRS, both, house
from support.received import received

from router.simulate import Script, tokenize

SCHEMA: Final = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "stops": {"type": "array", "items": {"type": "integer"}},
        "open": {"type": "boolean"},
    },
    "required": ["city", "stops", "open"],
    "additionalProperties": False,
}
DOCUMENT: Final = '{"city": "Oslo, the old town", "stops": [36, 4, 112], "open": true}'


def document(client: str) -> dict[str, Any]:
    """A request for one."""
    if client == "chat":
        named = {"name": "trip", "schema": SCHEMA, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    return {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}


@pytest.mark.parametrize(("client", "family"), PAIRS)
async def test_a_document(client: str, family: str) -> None:
    async with house(family, script=Script(json_text=DOCUMENT)) as place:
        heard = await both(place, client, document(client))
    assert heard.content == (DOCUMENT, "", [], ["stop"])
    assert received(place.last()).schema == SCHEMA


@pytest.mark.parametrize("second", FAMILIES)
@pytest.mark.parametrize("first", FAMILIES)
async def test_a_document_that_is_finished_elsewhere(first: str, second: str) -> None:
    """Cut anywhere: the other provider has other words for what had not come yet."""
    other = DOCUMENT.replace("112", "113").replace(", ", ",").replace("Oslo,", "Bergen,")
    scripts = [Script(json_text=DOCUMENT), Script(json_text=other)]
    parts = {json.dumps(json.loads(one), sort_keys=True) for one in (DOCUMENT, other)}
    mixed = 0
    async with house(first, second, scripts=scripts) as place:
        for turn, client in enumerate(CLIENTS):
            for cut in range(1 + turn, len(tokenize(DOCUMENT)), 1 if FULL else len(CLIENTS)):
                place.faults(f"{('cut', 'rst')[cut % 2]}@{cut}")
                answer = await place.client(client).raw(**document(client))
                assert answer.error is None, (client, cut, answer.error)
                value = json.loads(answer.delivered)
                assert value.keys() == {"city", "stops", "open"}
                assert all(isinstance(stop, int) for stop in value["stops"])
                assert answer.canonical == answer.delivered  # no value is ever taken back
                assert [one["fault"] for one in facts(answer)["attempts"]] == ["cut", None]
                mixed += json.dumps(value, sort_keys=True) not in parts
    assert mixed  # values of both stand in one document


@pytest.mark.parametrize(
    ("second", "model", "style"),
    [
        ("anthropic", "claude-3-7-sonnet-20250219", "assistant_tail"),
        ("gemini", "gemini-2.5-flash", "assistant_tail"),
        ("anthropic", "claude-opus-4-7", "instruct"),
        ("gemini", "gemini-3.6-flash", "instruct"),
    ],
)
async def test_a_document_that_is_gone_on_with_from_its_text(
    second: str, model: str, style: str
) -> None:
    """Without its schema, which does not go with a beginning: the router checks what follows."""
    script = Script(text=DOCUMENT, json_text=DOCUMENT)
    targets = [{}, {"model": model, "continuation": {"schema": "drop"}}]
    async with house("openai", second, script=script, targets=targets) as place:
        for turn, client in enumerate(CLIENTS):
            for cut in range(3 + turn, len(tokenize(DOCUMENT)) - 1, 4):
                place.faults(f"cut@{cut}")
                answer = await place.client(client).raw(**document(client))
                assert answer.error is None, (client, cut, answer.error)
                assert answer.delivered == DOCUMENT
                (failover,) = facts(answer)["failovers"]
                begun = failover["committed_chars"] > 0
                assert failover["style"] == (style if begun else "original")
                assert received(place.last(1)).schema == (None if begun else SCHEMA)


def facts(answer: Any) -> dict[str, Any]:  # noqa: ANN401 - of either format
    """The failover metadata, which must be there."""
    assert answer.metadata is not None
    found: dict[str, Any] = answer.metadata
    return found
