"""The published JSON schema and the tables that must agree with other rooms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import jsonschema
import pytest
from pydantic import BaseModel
from pysbd.languages import LANGUAGE_CODES

from router.config import ProviderType, json_schema
from router.config import schema as shapes
from router.config.rules import PYSBD_LANGUAGES
from router.config.schema import (
    FIELD_STYLES,
    KNOWS_THINKING,
    NEEDS_BASE_URL,
    OTHER_FORMATS,
    SECTIONS,
    keys_of,
)
from router.config.source import read_tree
from router.core.continuation import Style
from router.core.request import Format
from router.providers.registry import FAMILIES
from router.providers.resolve import STYLES

ROOT = Path(__file__).parent.parent
FIXTURES = Path(__file__).parent / "fixtures" / "config"
PUBLISHED = ROOT / "docs" / "config.schema.json"


class AsWritten(dict[str, str]):
    """An environment that leaves every variable as an editor sees it."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return f"${{{name}}}"


def errors_of(path: Path) -> list[str]:
    validator = jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text()))
    tree = read_tree(path.read_text(), AsWritten())
    return [error.message for error in validator.iter_errors(tree.data)]


def test_the_published_schema_is_current() -> None:
    assert PUBLISHED.read_text() == json_schema(), "run `router schema > docs/config.schema.json`"


def test_the_published_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(PUBLISHED.read_text()))


@pytest.mark.parametrize(
    "path",
    [
        *sorted((FIXTURES / "good").glob("*.yaml")),
        *sorted((ROOT / "docs" / "examples").glob("*.yaml")),
    ],
    ids=lambda p: p.stem,
)
def test_an_editor_takes_a_good_file(path: Path) -> None:
    assert errors_of(path) == []


@pytest.mark.parametrize(
    "name",
    [
        "choice-misspelt",
        "continuation-rules",
        "empty-sections",
        "language-is-no",
        "many-at-once",
        "missing-provider",
        "not-yet-provider",
        "number-as-text",
        "number-out-of-range",
        "provider-name",
        "route-without-targets",
        "sections-missing",
        "unknown-keys",
    ],
)
def test_an_editor_marks_a_broken_file(name: str) -> None:
    assert errors_of(FIXTURES / "bad" / f"{name}.yaml")


def test_every_key_is_described() -> None:
    definitions = json.loads(json_schema())
    for section in (definitions, *definitions["$defs"].values()):
        for name, entry in section.get("properties", {}).items():
            assert entry.get("description"), name


def test_every_section_has_its_place() -> None:
    sections = {
        value
        for value in vars(shapes).values()
        if isinstance(value, type) and issubclass(value, BaseModel) and value is not BaseModel
    }
    assert {section for section in sections if section.model_fields} == set(SECTIONS.values())
    assert "schema" in keys_of(shapes.Continuation)


def test_every_key_is_documented() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    for section in SECTIONS.values():
        for key in keys_of(section):
            assert f"`{key}`" in text, key


def test_the_provider_types_are_the_registrys_rows() -> None:
    assert set(get_args(ProviderType)) == set(FAMILIES)
    assert all(f"`{name}`" in (ROOT / "docs" / "configuration.md").read_text() for name in FAMILIES)


def test_only_types_with_an_address_of_their_own_go_without_base_url() -> None:
    assert {name for name, row in FAMILIES.items() if row.base_url is None} <= NEEDS_BASE_URL


def test_thinking_is_switched_off_where_the_registry_knows_how() -> None:
    known = {name for name, row in FAMILIES.items() if row.thinking_off is not None}
    assert known == KNOWS_THINKING


def test_styles_that_are_fields_of_chat_completions_are_refused_elsewhere() -> None:
    others = {name for name, row in FAMILIES.items() if row.format is not Format.OPENAI}
    assert others == OTHER_FORMATS
    for name in others:
        assert STYLES[FAMILIES[name].format] == set(Style) - FIELD_STYLES


def test_the_languages_are_pysbds() -> None:
    assert set(LANGUAGE_CODES) == PYSBD_LANGUAGES
