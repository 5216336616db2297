"""The shape of a configuration: every key, its default and its range, as frozen objects.

This is the one place where a default stands; `docs/configuration.md` and the published
`docs/config.schema.json` follow it. What concerns several keys at once is in `rules.py`.
Secrets are `SecretStr`: no `repr`, log or error shows them.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    StringConstraints,
)
from pydantic_core import PydanticCustomError

from router.config.redis_url import parse_redis_url
from router.core.continuation import Echo, SchemaWithPrefix, Style

ProviderType: TypeAlias = Literal[
    "openai",
    "azure-openai",
    "openai-compatible",
    "openrouter",
    "deepseek",
    "mistral",
    "kimi",
    "qwen",
    "groq",
    "together",
    "fireworks",
    "xai",
    "vllm",
    "sglang",
    "llama.cpp",
    "ollama",
    "lm-studio",
    "anthropic",
    "gemini",
]
"""Each is a row of the provider registry."""

NEEDS_BASE_URL: frozenset[str] = frozenset({"azure-openai", "openai-compatible", "vllm", "sglang"})
"""Types that have no address of their own."""

KNOWS_THINKING: frozenset[str] = frozenset(
    {
        *("anthropic", "deepseek", "gemini", "kimi", "llama.cpp", "ollama", "openrouter", "qwen"),
        *("sglang", "vllm"),
    }
)
"""Types whose way of switching thinking off the registry knows; a test compares."""

OTHER_FORMATS: frozenset[str] = frozenset({"anthropic", "gemini"})
"""Types that speak no chat completions; a test compares."""
FIELD_STYLES: frozenset[Style] = frozenset(
    {Style.PREFIX_FLAG, Style.PARTIAL_FLAG, Style.CONTINUE_FINAL}
)
"""Styles that are fields of chat completions; a test compares."""


def _wrong(message: str, remedy: str) -> PydanticCustomError:
    """A complaint with its remedy; the path is put before it later. Must quote no value."""
    return PydanticCustomError("config", "{message}", {"message": message, "remedy": remedy})


# --- field types --------------------------------------------------------------------------------


def _no_bool(value: object) -> object:
    """YAML's `yes` would pass for 1."""
    if isinstance(value, bool):
        raise _wrong("should be a number", "Write a number.")
    return value


_NoBool = BeforeValidator(_no_bool)
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False), _NoBool]
"""A time limit: positive, a day at most."""
SecondsOrZero = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False), _NoBool]
"""A span that may be nothing."""
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
"""A provider's name: it stands in headers, logs and metrics."""
ModelName = Annotated[str, StringConstraints(pattern=r"^[!-~]([ -~]{0,254}[!-~])?$")]
"""A model's name, public or a provider's: it stands in headers, so it is visible ASCII."""


def _credential(value: SecretStr) -> SecretStr:
    """A key travels in a header: visible ASCII. A line end from `$(cat key)` is the classic."""
    text = value.get_secret_value()
    if not text:
        raise _wrong("is empty", "Give the key, or leave the entry away to use none.")
    if not re.fullmatch(r"[!-~]+", text):
        raise _wrong(
            "holds white space or a character that is not ASCII",
            "Give the key alone, without a line end or quotes around it.",
        )
    return value


Credential = Annotated[SecretStr, Field(max_length=8192), AfterValidator(_credential)]
"""A key that goes into a header."""


def _header_value(value: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[!-~]([\t -~]*[!-~])?", value.get_secret_value()):
        raise _wrong(
            "is empty, or holds a line end or a character that is not ASCII",
            "Give one line of plain text.",
        )
    return value


_OWN_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that the router itself must set for a request to be right."""


def _header_name(value: str) -> str:
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", value):
        raise _wrong("is no header name", "Use letters, digits and `-`.")
    if value.lower() in _OWN_HEADERS:
        raise _wrong("is a header that the router sets itself", "Remove it.")
    return value


def _base_url(value: str) -> str:
    """An absolute URL without a trailing slash."""
    remedy = "Write it such as `https://host:8000/v1`."
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018 - parsed when asked for
    except ValueError:
        raise _wrong("is no URL", remedy) from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise _wrong("is no absolute http or https URL", remedy)
    if parts.username is not None or parts.password is not None:
        raise _wrong("holds credentials", "Move them to `api_key` or `headers`.")
    if parts.query or parts.fragment or not re.fullmatch(r"[!-~]+", value):
        raise _wrong("holds a query, a fragment or white space", remedy)
    return value.rstrip("/")


def _redis_url(value: SecretStr) -> SecretStr:
    try:
        parse_redis_url(value.get_secret_value())
    except ValueError as error:
        raise _wrong(
            f"is no Redis URL: {error}",
            "Write it such as `redis://127.0.0.1:6379/0`, `redis+sentinel://h1,h2,h3/name` or "
            "`redis+cluster://h1,h2,h3`, with `rediss` for TLS, or leave it away to keep the "
            "record in memory.",
        ) from None
    return value


def _file(value: str) -> str:
    if not Path(value).is_file():
        raise _wrong("names no file that is here", "Give the path of a PEM file.")
    return value


def _sealing_key(value: SecretStr) -> SecretStr:
    if read_key(value.get_secret_value()) is None:
        raise _wrong(
            f"is no key: {KEY_BYTES} random bytes in base64",
            f"Make one with `openssl rand -base64 {KEY_BYTES}`.",
        )
    return value


def read_key(text: str) -> bytes | None:
    """The bytes of a key that is written in base64, in either alphabet; None if it is none.

    Args:
        text: as the configuration has it.
    """
    try:
        key = base64.b64decode(text.translate(_URL_SAFE), validate=True)
    except ValueError:  # of which binascii's own is a kind
        return None
    return key if len(key) == KEY_BYTES else None


_URL_SAFE = str.maketrans("-_", "+/")

KEY_BYTES = 32
"""Size of a key: AES-256's."""

SealingKey = Annotated[SecretStr, Field(max_length=128), AfterValidator(_sealing_key)]
"""A key that the record's text is encrypted with."""
File = Annotated[str, Field(max_length=4096), AfterValidator(_file)]
"""A file that must be there."""


def is_host(value: str) -> bool:
    """It is an IP address or may be a host name."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252})", value) is not None
    return True


def _host(value: str) -> str:
    if not is_host(value):
        raise _wrong(
            "is no host name and no address",
            "Write the address alone, such as `127.0.0.1` or `::1`; `port` is its own key.",
        )
    return value


CHECK_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*|[\w.-]+", re.ASCII)
"""`module:callable`, or the name of an entry point."""


def _check_name(value: str) -> str:
    if CHECK_NAME.fullmatch(value) is None:
        raise _wrong(
            "is no name of a check",
            "Write `module:callable`, or the name of an entry point of the group "
            "`seam_router.boundary_checks`.",
        )
    return value


def _patch(value: object) -> object:
    """`disable_thinking` is a JSON object or a truth value, never one spelled as text."""
    if value is None or isinstance(value, bool | dict):
        return value
    raise _wrong(
        "is neither true, false nor the fields that switch thinking off",
        "Write `true` for the family's own way, or the fields, such as "
        "`{thinking: {type: disabled}}`.",
    )


_Frozen = (AfterValidator(MappingProxyType), PlainSerializer(dict))


class _Section(BaseModel):
    """Frozen, and closed to unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )


# --- sections -----------------------------------------------------------------------------------


class Limits(_Section):
    """What each API key may use; without keys, all clients together."""

    concurrent_streams: Annotated[int, Field(ge=1, le=1_000_000), _NoBool] | None = None
    """Streams at once."""
    requests_per_minute: Annotated[int, Field(ge=1, le=10_000_000), _NoBool] | None = None
    """Requests that are let in, spread evenly."""
    tokens_per_minute: Annotated[int, Field(ge=1, le=10_000_000_000), _NoBool] | None = None
    """Tokens of prompts and answers; what a stream cost counts from its end on."""


class Server(_Section):
    """Where and how the router listens."""

    host: Annotated[str, AfterValidator(_host)] = "127.0.0.1"
    """Address to listen on; beyond loopback only with `api_keys`."""
    port: Annotated[int, Field(ge=0, le=65_535), _NoBool] = 8080
    """TCP port; 0 takes a free one."""
    api_keys: Annotated[tuple[Credential, ...], Field(max_length=10_000)] = ()
    """Keys that clients send as `Authorization: Bearer`; none lets everyone on this machine in."""
    admin_keys: Annotated[tuple[Credential, ...], Field(max_length=1_000)] = ()
    """Keys for `/router/…` and `/metrics`, sent the same way; without them `api_keys` count there
    too, and without either only this machine is let in."""
    limits: Limits = Limits()
    """What each key may use."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=1 << 30), _NoBool] = 10_485_760
    """A larger request body is refused with 413. Images travel inside bodies."""
    max_header_bytes: Annotated[int, Field(ge=1024, le=1 << 20), _NoBool] = 32_768
    """Larger request headers are refused with 431."""
    commit_headers_after_s: Seconds = 10
    """After this wait for the first output the 200 goes out, with comments to keep it alive."""
    drain_s: SecondsOrZero = 30
    """At shutdown, how long live streams may still run."""


class Record(_Section):
    """Where the failover record is kept, and for how long."""

    url: Annotated[SecretStr, AfterValidator(_redis_url)] | None = None
    """Redis: `redis://`, `rediss://` (TLS), `unix://`, `redis+sentinel://…`, `redis+cluster://…`;
    without it the record is in memory."""
    ca_file: File | None = None
    """Certificates, PEM, by which Redis is known under TLS; without it those of the system."""
    cert_file: File | None = None
    """Certificate, PEM, that is shown to a Redis which asks for one; needs `key_file`."""
    key_file: File | None = None
    """Its key."""
    connect_timeout_s: Seconds = 1
    """Longest wait for a connection to Redis."""
    command_timeout_s: Seconds = 1
    """Longest wait for an answer of Redis. No stream ever waits for one; a resume does."""
    retain: Literal["text", "none"] = "text"
    """`none`: no text of an answer is kept anywhere; a stream survives its provider, and cannot be
    resumed."""
    encryption_key: SealingKey | None = None
    """32 random bytes in base64, with which the text in Redis is encrypted."""
    encryption_keys: Annotated[tuple[SealingKey, ...], Field(max_length=16)] = ()
    """Several such keys in its place: the first encrypts, each decrypts."""
    resume_window_s: SecondsOrZero = 120
    """How long the text of an interrupted stream is kept, so that it can be resumed."""
    retain_s: SecondsOrZero = 0
    """How long the text of a completed stream is kept; 0 deletes it at once."""

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys, as bytes; the first one encrypts."""
        one = (self.encryption_key,) if self.encryption_key else ()
        found = (read_key(key.get_secret_value()) for key in (*one, *self.encryption_keys))
        return tuple(key for key in found if key is not None)


class Books(_Section):
    """The rows that are kept of requests: how they went, never what they said."""

    max_rows: Annotated[int, Field(ge=1, le=1_000_000), _NoBool] = 10_000
    """How many: in each process, and together in Redis where `record.url` names one."""
    keep_s: Annotated[float, Field(ge=1, le=31_536_000, allow_inf_nan=False), _NoBool] = 604_800
    """How long Redis keeps a row."""


class Health(_Section):
    """When a failing target is left out for a while."""

    eject_after: Annotated[int, Field(ge=1, le=1000), _NoBool] = 3
    """Consecutive faults after which a target is ejected."""
    cool_down_s: Seconds = 10
    """First time out; it doubles with each further one."""
    eject_rate: Annotated[float, Field(gt=0, le=1), _NoBool] = 0.5
    """Share of faults among the last 20 attempts, at least 10, that ejects; 1 switches it off."""
    max_cool_down_s: Seconds = 30
    """Longest time out."""


class Continuation(_Section):
    """How a target is asked to go on, where it differs from its family's default."""

    model_config = ConfigDict(validate_by_alias=True, serialize_by_alias=True)

    style: Style | None = None
    """One of the seven continuation styles."""
    echo: Echo | None = None
    """Does the answer repeat the prefix?"""
    rstrip_prefix: bool | None = None
    """Remove white space from the prefix's end."""
    disable_thinking: Annotated[dict[str, Any] | bool | None, BeforeValidator(_patch)] = None
    """Switch thinking off in a continuation: `true` in the family's own way, `false` not at all, a
    mapping as a JSON merge patch of the request."""
    schema_with_prefix: Annotated[SchemaWithPrefix | None, Field(alias="schema")] = None
    """Is `response_format` sent along with a prefix?"""


class ContinuationRule(Continuation):
    """How the models of some names are asked to go on, at one provider."""

    models: ModelName
    """Pattern for the whole name, in any case: `*` is any text, `?` any one character."""


class Provider(_Section):
    """One account at one provider, or one server of one's own."""

    type: ProviderType
    """The provider's family."""
    base_url: Annotated[str, AfterValidator(_base_url)] | None = None
    """Address up to and with the version, such as `http://gpu-1:8000/v1`; each public provider has
    its own as the default."""
    api_key: Credential | None = None
    """Credential; without it none is sent."""
    headers: Annotated[
        Mapping[
            Annotated[str, AfterValidator(_header_name)],
            Annotated[SecretStr, AfterValidator(_header_value)],
        ],
        Field(max_length=50, default_factory=lambda: MappingProxyType({})),
        *_Frozen,
    ]
    """Further static headers."""
    api_version: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.-]{1,64}$")] | None = None
    """`azure-openai` only: the value of `api-version`."""
    continuation_rules: Annotated[tuple[ContinuationRule, ...], Field(max_length=200)] = ()
    """How its models are asked to go on, by their names; the first rule that fits counts, before
    the ones that are built in."""


class Timeouts(_Section):
    """Time limits of one route, in seconds."""

    connect_s: Seconds = 2
    """To open a connection."""
    first_output_s: Seconds = 15
    """To the first output or reasoning of an attempt."""
    idle_s: Seconds = 5
    """Between two outputs."""
    total_s: Seconds = 600
    """For the whole request, all attempts and waits."""


class TargetTimeouts(_Section):
    """Time limits of one target that differ from its route's, in seconds."""

    connect_s: Seconds | None = None
    """To open a connection."""
    first_output_s: Seconds | None = None
    """To the first output or reasoning of an attempt."""
    idle_s: Seconds | None = None
    """Between two outputs."""


class Target(_Section):
    """One model at one provider."""

    provider: str
    """Name of an entry of `providers`."""
    model: ModelName
    """The provider's own name of the model."""
    continuation: Continuation = Continuation()
    """How it is asked to go on."""
    context_window: Annotated[int, Field(ge=1), _NoBool] | None = None
    """Tokens; lets a request that was too long elsewhere fail over to a larger one."""
    timeouts: TargetTimeouts = TargetTimeouts()
    """Limits that differ from the route's."""

    @property
    def name(self) -> str:
        """How headers, logs and metadata call it: `provider/model`."""
        return f"{self.provider}/{self.model}"


class Retry(_Section):
    """When the same target is asked again, before any output."""

    same_target: Annotated[int, Field(ge=0, le=10), _NoBool] = 1
    """How often."""
    max_wait_s: SecondsOrZero = 2
    """If the wait would be longer, the next target is asked at once."""


MIN_ATTEMPTS = 4
"""Upstream calls per request where a route says nothing, and has no more targets than that."""


class Route(_Section):
    """One public model name."""

    targets: Annotated[tuple[Target, ...], Field(min_length=1, max_length=32)]
    """In priority order."""
    timeouts: Timeouts = Timeouts()
    """Time limits."""
    max_attempts: Annotated[int, Field(ge=1, le=100), _NoBool] | None = None
    """Upstream calls per request, retries and failovers together; without it 4, or one for each
    target where there are more."""
    retry: Retry = Retry()
    """When the same target is asked again."""
    stall: Literal["fixed", "adaptive", "hedge"] = "fixed"
    """How silence in mid-answer is judged: by `idle_s`; by what is usual for the target, at most
    `idle_s`; or by that, asking the next target while the silent one is still heard."""
    on_interrupt: Literal["resume", "restart", "partial"] = "resume"
    """What happens when a provider dies in mid-answer; a client may choose for itself."""
    tool_calls: Literal["stream", "atomic"] = "stream"
    """How tool calls are delivered: as they come, or held back until they are whole."""
    unsupported: Literal["refuse", "drop"] = "refuse"
    """What becomes of a request that asks for something which a target's format cannot say: the
    target is passed over, or is asked without it and the client told so."""
    think_tags: Literal["text", "reasoning"] = "text"
    """What `<think>` at the beginning of the content is."""
    boundary: Literal["text", "json"] = "text"
    """Where the record may advance; `json`: every answer is a document, given in whole values."""
    language: Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")] = "en"
    """Language of the answers (ISO 639), for sentence ends."""
    sentences: Literal["pysbd", "fast"] = "pysbd"
    """Who finds sentence ends; `fast` needs the extra `fast-sentences`."""
    max_pending_chars: Annotated[int, Field(ge=50, le=100_000), _NoBool] = 1000
    """Text without a sentence end is committed at white space once it is this long."""
    boundary_check: Annotated[str, AfterValidator(_check_name)] | None = None
    """Your own check of every unit before it is committed: `module:callable`, or the name of an
    entry point of the group `seam_router.boundary_checks`."""
    boundary_check_s: Seconds = 1
    """How long it may take for one unit."""
    on_check_failure: Literal["accept", "reject"] = "accept"
    """What counts if it raises, or says nothing in time; either is logged."""
    on_reject: Literal["reroute", "end"] = "reroute"
    """What a rejection in text leads to: the next target goes on from the last accepted unit, or
    the stream ends. In structured output it is a violation of the schema."""

    @property
    def attempts(self) -> int:
        """Upstream calls per request."""
        return self.max_attempts or max(MIN_ATTEMPTS, len(self.targets))

    def timeouts_for(self, target: Target) -> Timeouts:
        """The limits of one of its targets: the target's own where it has some."""
        own = {name: value for name, value in target.timeouts if value is not None}
        return self.timeouts.model_copy(update=own)


class Config(_Section):
    """A whole configuration file."""

    server: Server = Server()
    """The side that clients see."""
    record: Record = Record()
    """The failover record."""
    books: Books = Books()
    """The rows that are kept of requests."""
    health: Health = Health()
    """Ejection of failing targets."""
    providers: Annotated[Mapping[Name, Provider], Field(min_length=1, max_length=1000), *_Frozen]
    """Accounts and servers, by a name of one's own."""
    routes: Annotated[Mapping[ModelName, Route], Field(min_length=1, max_length=5000), *_Frozen]
    """Public model names."""


SECTIONS: Mapping[tuple[str, ...], type[BaseModel]] = MappingProxyType(
    {
        (): Config,
        ("server",): Server,
        ("server", "limits"): Limits,
        ("record",): Record,
        ("books",): Books,
        ("health",): Health,
        ("providers", "*"): Provider,
        ("providers", "*", "continuation_rules", "*"): ContinuationRule,
        ("routes", "*"): Route,
        ("routes", "*", "timeouts"): Timeouts,
        ("routes", "*", "retry"): Retry,
        ("routes", "*", "targets", "*"): Target,
        ("routes", "*", "targets", "*", "timeouts"): TargetTimeouts,
        ("routes", "*", "targets", "*", "continuation"): Continuation,
    }
)
"""Which section stands where; `*` is any name or index."""


def keys_of(section: type[BaseModel]) -> tuple[str, ...]:
    """The keys of a section as they are written in the file."""
    return tuple(info.alias or name for name, info in section.model_fields.items())
