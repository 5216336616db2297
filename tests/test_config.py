"""Files to configurations: the fixtures, each broken one with what must be said of it beside it."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from router.config import Config, Surroundings, is_loopback, load_config, parse_config
from router.config.load import MAX_PROBLEMS
from router.config.source import MAX_FILE_BYTES
from router.core.continuation import Echo, SchemaWithPrefix, Style
from router.errors import ConfigError, ConfigErrors

FIXTURES = Path(__file__).parent / "fixtures" / "config"
EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
ENV = {
    "ROUTER_API_KEY": "router-secret",
    "OPENAI_API_KEY": "openai-secret",
    "OPENROUTER_API_KEY": "openrouter-secret",
    "KEY_WITH_LINE_END": "file-secret\n",
    "PORT": "8099",
}
SMALLEST = (FIXTURES / "good" / "smallest.yaml").read_text()


def good(name: str) -> Config:
    return load_config(FIXTURES / "good" / f"{name}.yaml", ENV)


def problems_of(text: str, around: Surroundings | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "f.yaml", ENV, around=around)
    return [str(problem) for problem in caught.value.problems]


# --- broken files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((FIXTURES / "bad").glob("*.yaml")), ids=lambda p: p.stem)
def test_a_broken_file_is_refused_with_lines_and_remedies(path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(path, ENV)
    told = [
        f"{problem.line or '-'}: {problem.message} {problem.remedy}"
        for problem in caught.value.problems
    ]
    assert told == path.with_suffix(".expected").read_text().splitlines()
    for problem in caught.value.problems:
        assert problem.file == str(path)
        assert problem.remedy.endswith(".") or problem.remedy.endswith("?")
    said = "".join(traceback.format_exception(caught.value))
    assert not any(secret in said for secret in ("-secret", "hunter2"))


def test_there_are_at_least_twenty_broken_files_each_with_its_expectation() -> None:
    bad = FIXTURES / "bad"
    stems = {path.stem for path in bad.glob("*.yaml")}
    assert len(stems) >= 20
    assert stems == {path.stem for path in bad.glob("*.expected")}


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"a: 1\nb: \xff\n", 2, "The file is not UTF-8."),
        (b"# " + b"x" * MAX_FILE_BYTES, None, "The file is larger than 262,144 bytes."),
        (b"# " + "é".encode() * MAX_FILE_BYTES, None, "The file is larger than 262,144 bytes."),
    ],
)
def test_bytes_that_are_no_text(
    tmp_path: Path, content: bytes, line: int | None, message: str
) -> None:
    path = tmp_path / "router.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path, ENV)
    assert (caught.value.line, caught.value.message) == (line, message)


@pytest.mark.parametrize("name", ["absent.yaml", "."])
def test_a_file_that_cannot_be_opened(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"The file cannot be read: .+\. Give the path"):
        load_config(tmp_path / name, ENV)


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + SMALLEST.encode())
    assert load_config(path, ENV) == good("smallest")


def test_a_report_is_bounded() -> None:
    text = "".join(f"key{n}: 1\n" for n in range(MAX_PROBLEMS * 2)) + SMALLEST
    assert len(problems_of(text)) == MAX_PROBLEMS


def test_the_group_is_an_error_with_the_first_ones_fields() -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_config("sever: {}\n", "f.yaml", ENV)
    assert caught.value.line == 1
    assert str(caught.value) == "\n".join(str(problem) for problem in caught.value.problems)
    assert len(caught.value.problems) == 3
    single = ConfigError("A.", file="f", line=None, remedy="B.")
    assert single.problems == (single,)


def test_the_fast_segmenter_must_be_installed() -> None:
    text = SMALLEST.replace("chat: {", "chat: {sentences: fast, language: fi, ")
    assert parse_config(text, "f.yaml", ENV).routes["chat"].language == "fi"
    (said,) = problems_of(text, Surroundings(fast_sentences=False))
    assert said.endswith("Install `seam-router[fast-sentences]`, or use `pysbd`.")


def test_a_bad_word_from_the_environment_is_not_shown() -> None:
    text = SMALLEST.replace("ollama", '"${OPENAI_API_KEY}"')
    (said,) = problems_of(text)
    assert said.startswith("f.yaml:1: `providers.local.type` is none of its choices. Use one of")


# --- good files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [*sorted((FIXTURES / "good").glob("*.yaml")), *sorted(EXAMPLES.glob("*.yaml"))],
    ids=lambda p: p.stem,
)
def test_a_good_file_is_taken(path: Path) -> None:
    assert load_config(path, ENV).routes


def test_the_defaults_are_the_documented_ones() -> None:
    config = good("smallest")
    server, record, health = config.server, config.record, config.health
    assert (server.host, server.port, server.api_keys) == ("127.0.0.1", 8080, ())
    assert (server.max_body_bytes, server.max_header_bytes) == (10_485_760, 32_768)
    assert (server.commit_headers_after_s, server.drain_s) == (10, 30)
    assert (record.url, record.resume_window_s, record.retain_s) == (None, 120, 0)
    assert (record.connect_timeout_s, record.command_timeout_s) == (1, 1)
    assert (record.retain, record.keys, record.ca_file) == ("text", (), None)
    assert (health.eject_after, health.cool_down_s, health.max_cool_down_s) == (3, 10, 30)
    route = config.routes["chat"]
    limits = route.timeouts
    assert (limits.connect_s, limits.first_output_s, limits.idle_s) == (2, 15, 5)
    assert limits.total_s == 600
    assert (route.attempts, route.retry.same_target, route.retry.max_wait_s) == (4, 1, 2)
    assert (route.on_interrupt, route.tool_calls, route.boundary) == ("resume", "stream", "text")
    assert route.unsupported == "refuse"
    assert (route.language, route.sentences, route.max_pending_chars) == ("en", "pysbd", 1000)
    (target,) = route.targets
    assert target.name == "local/llama3.2"
    assert target.context_window is None
    assert target.continuation.style is None
    assert config.providers["local"].api_key is None
    assert config.providers["local"].headers == {}
    assert config.providers["local"].continuation_rules == ()


def test_every_key_arrives() -> None:
    config = good("everything")
    assert (config.server.host, config.server.port) == ("::1", 9090)
    assert [key.get_secret_value() for key in config.server.api_keys] == ["first-key", "second-key"]
    assert config.record.url is not None
    assert config.record.url.get_secret_value() == "rediss://user:password@redis.example:6380/2"
    assert config.record.keys == (bytes(range(32)), b"\xff" * 32)
    assert (config.record.connect_timeout_s, config.record.command_timeout_s) == (0.5, 2)
    blue = config.providers["blue"]
    assert blue.base_url == "https://blue.openai.azure.com"
    assert blue.api_version == "2024-10-21"
    assert blue.headers["X-Tenant"].get_secret_value() == "blue"
    some, rest = config.providers["deep"].continuation_rules
    assert (some.models, rest.models) == ("deepseek-v?-*", "*")
    assert (some.style, some.echo, some.rstrip_prefix) == (Style.INSTRUCT, Echo.AUTO, False)
    assert (some.disable_thinking, some.schema_with_prefix) == (False, SchemaWithPrefix.REFUSE)
    assert (rest.style, rest.echo) == (None, Echo.NEVER)
    route = config.routes["meta/chat"]
    assert route.unsupported == "drop"
    first, second = route.targets
    assert first.context_window == 400_000
    how = second.continuation
    assert (how.style, how.echo, how.rstrip_prefix) == (Style.PREFIX_FLAG, Echo.NEVER, True)
    assert how.disable_thinking == {"thinking": {"type": "disabled"}}
    assert how.schema_with_prefix is SchemaWithPrefix.DROP
    assert route.timeouts_for(second) == route.timeouts
    own = route.timeouts_for(first)
    assert (own.connect_s, own.first_output_s, own.idle_s, own.total_s) == (1, 30, 10, 900)


def test_anchors_and_merges() -> None:
    config = good("anchors")
    assert config.routes["fast"].targets == config.routes["slow"].targets
    assert config.routes["fast"].timeouts.idle_s == 8
    assert config.routes["slow"].timeouts.idle_s == 30
    assert config.routes["slow"].timeouts.first_output_s == 20
    assert config.providers["two"].type == "vllm"
    assert config.providers["two"].base_url == "http://two:8000/v1"


def test_variables() -> None:
    config = good("variables")
    assert (config.server.port, config.server.host) == (8099, "0.0.0.0")
    local = config.providers["local"]
    assert local.base_url == "http://127.0.0.1:8080/v1"
    assert local.headers["X-Template"].get_secret_value() == "${NAME}"


def test_a_configuration_is_frozen() -> None:
    config = good("everything")
    for section in (config, config.server, config.routes["meta/chat"].targets[0].continuation):
        name = next(iter(type(section).model_fields))
        with pytest.raises(ValueError, match="frozen"):
            setattr(section, name, getattr(section, name))
    for mapping in (config.providers, config.routes, config.providers["blue"].headers):
        with pytest.raises(TypeError):
            mapping["new"] = mapping  # type: ignore[index] # that is the point


def test_no_repr_and_no_dump_shows_a_secret() -> None:
    config = good("everything")
    for text in (repr(config), str(config), config.model_dump_json(), str(config.model_dump())):
        secrets = ("first-key", "azure-key", "deep-key", "password", "____")
        assert not any(word in text for word in secrets)


# --- the command line's word ----------------------------------------------------------------------


def test_the_command_line_goes_before_the_file() -> None:
    path = FIXTURES / "good" / "design.yaml"
    config = load_config(path, ENV, host="0.0.0.0", port=0)
    assert (config.server.host, config.server.port) == ("0.0.0.0", 0)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "example.org", "0", "127.0.0.1:80"])
def test_the_command_line_cannot_open_a_router_without_keys(host: str) -> None:
    with pytest.raises(ConfigError, match="`--host`"):
        load_config(FIXTURES / "good" / "smallest.yaml", ENV, host=host)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("localhost.example.org", False),
        ("10.0.0.1", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


# --- whatever is in the file ----------------------------------------------------------------------

EVERYTHING = yaml.safe_load((FIXTURES / "good" / "everything.yaml").read_text())


def places(node: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every path into a document, the root's left out."""
    below = (
        list(node.items())
        if isinstance(node, dict)
        else list(enumerate(node))
        if isinstance(node, list)
        else []
    )
    found = [path] if path else []
    for key, value in below:
        found += places(value, (*path, key))
    return found


def replaced(node: object, path: tuple[str | int, ...], value: object) -> object:
    """A copy with another value at `path`."""
    if not path:
        return value
    if isinstance(node, dict):
        return {k: replaced(v, path[1:], value) if k == path[0] else v for k, v in node.items()}
    assert isinstance(node, list)
    return [replaced(v, path[1:], value) if i == path[0] else v for i, v in enumerate(node)]


PLACES = places(EVERYTHING)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(
    text=st.text(
        alphabet=st.sampled_from("ab:-# \n\t{}[],&*!|>'\"%@`$\\x0<?~é\x07\ud800"), max_size=60
    )
)
def test_any_text_is_taken_or_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "f.yaml", {})
    assert all(problem.message and problem.remedy for problem in caught.value.problems)
    str(caught.value).encode()  # can be printed


@settings(max_examples=300)
@given(path=st.sampled_from(PLACES), value=json_values)
def test_any_value_at_any_place_is_taken_or_refused_with_a_reason(
    path: tuple[str | int, ...], value: object
) -> None:
    text = yaml.safe_dump(replaced(EVERYTHING, path, value), allow_unicode=True, sort_keys=False)
    try:
        parse_config(text, "f.yaml", {})
    except ConfigError as error:
        for problem in error.problems:
            assert problem.message.endswith(".")
            assert "See docs/configuration.md" not in problem.remedy  # no complaint without words
        str(error).encode()


@settings(max_examples=300)
@given(
    path=st.sampled_from(PLACES),
    secret=st.text(
        alphabet=st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_characters="`"),
        min_size=12,
        max_size=40,
    )
    | st.from_regex(r"-?[0-9]{12,16}", fullmatch=True),
)
def test_a_value_from_the_environment_is_in_no_error(
    path: tuple[str | int, ...], secret: str
) -> None:
    text = yaml.safe_dump(replaced(EVERYTHING, path, "${SECRET}"), sort_keys=False)
    assert secret not in said_of(text, {"SECRET": secret})


def said_of(text: str, env: dict[str, str]) -> str:
    """All that a log could hold of the refusal of a file; nothing when it is taken."""
    try:
        parse_config(text, "f.yaml", env)
    except ConfigError as error:
        return "".join(traceback.format_exception(error))
    return ""
