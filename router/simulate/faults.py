"""How the simulated provider fails: the faults, and the mini language they are written in.

    directives = directive *( ";" directive )
    directive  = name [ "@" N ] *( "," key "=" value )  |  key "=" value *( "," key "=" value )
               |  "call" [ "=" tool ]

`cut@40` cuts after 40 tokens; `status=429,retry_after=2,times=1` is a 429 once; values may be
percent-encoded. The same language serves the command line, a model name (`sim-model!cut@40`; there
`!` separates) and the header `x-simulate`. It knows no wire format: each one shows a misdeed in its
own shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from router.simulate.prefix import BEHAVIOURS

T = TypeVar("T")


class Misdeed(StrEnum):
    """The ways to fail. N is the number after `@`: pieces sent whole before it, unless said."""

    # before the headers
    REFUSE = "refuse"
    """The connection is reset and the listener closed, for `for_s` or for good."""
    RESET = "reset"
    """RST once the request is read."""
    CLOSE = "close"
    """FIN once the request is read."""
    SILENT = "silent"
    """The request is read and never answered."""
    SLOW_HEADER = "slow_header"
    """The status line, then one byte of a header every `every_s`, for ever."""
    # instead of a stream
    STATUS = "status"
    """An error response: `status`, `retry_after`, `code`, `type`, `message`, `param`, `header`."""
    REDIRECT = "redirect"
    """A 307 to `message`, by default to a path that does not exist."""
    HTML = "html"
    """A page under 200; `content_type` lies about it."""
    JSON = "json"
    """The whole completion as JSON; `content_type` lies about it."""
    DONE_ONLY = "done_only"
    """Nothing but the terminal marker, where the format has one."""
    EMPTY = "empty"
    """An answer without anything in it, which ends as if it were one."""
    FILTERED = "filtered"
    """A filter ends the answer after N pieces, or (no N) before the first; the status is 200."""
    # in the stream
    CUT = "cut"
    """FIN without the end of the body."""
    RST = "rst"
    """RST."""
    CUT_BYTE = "cut_byte"
    """As `cut`, N bytes of the body in; `form`: `fin`, `rst`, `end` (clean) or `stall`."""
    STALL = "stall"
    """Silence, for `for_s` or for good."""
    ROLE_THEN_SILENCE = "role_then_silence"
    """The role delta, then nothing."""
    KEEPALIVE_FOREVER = "keepalive_forever"
    """Every `every_s` a sign of life without content; `form`: `comment`, `empty`, `role`."""
    ERROR = "error"
    """An error object in the stream, then a clean end; `form` as in `ERROR_FORMS`."""
    ERROR_THEN_DONE = "error_then_done"
    """The same with the terminal marker after it."""
    MALFORMED = "malformed"
    """Piece N comes as broken JSON; all others are fine."""
    BIG_LINE = "big_line"
    """A line of `size_bytes` without an end, then a clean end of the body."""
    NO_FINISH = "no_finish"
    """A clean end of the body; without N after the last piece."""
    DONE_EARLY = "done_early"
    """The terminal marker without a finish; as `no_finish` where the format has no marker."""
    FINISH_ERROR = "finish_error"
    """A finish whose reason is `reason`, by default `error` or what the format has for it."""
    # at the end
    NO_DONE = "no_done"
    """No terminal marker after the finish."""
    CUT_AFTER_FINISH = "cut_after_finish"
    """FIN after the finish."""
    AFTER_DONE_FOREVER = "after_done_forever"
    """A body that does not end after the terminal marker; `form`: `comment` or `silence`."""
    # of the whole body
    GZIP = "gzip"
    """The body compressed, though nobody asked."""
    BAD_LENGTH = "bad_length"
    """A Content-Length that is wrong by `delta` bytes."""


ERROR_FORMS: Final = ("object", "choices", "event", "string", "field", "flat")
"""Shapes of an error in a stream, beside the format's own (no form): the bare object, with empty
`choices` (`candidates`), after `event: error`, a string, llama.cpp's `error:` field, TGI's flat
object."""

FORMS: Final[Mapping[Misdeed, tuple[str, ...]]] = {
    Misdeed.CUT_BYTE: ("fin", "rst", "end", "stall"),
    Misdeed.KEEPALIVE_FOREVER: ("comment", "empty", "role"),
    Misdeed.ERROR: ERROR_FORMS,
    Misdeed.ERROR_THEN_DONE: ERROR_FORMS,
    Misdeed.AFTER_DONE_FOREVER: ("comment", "silence"),
}
"""What `form` may be, where there is a choice."""

DEFAULT_BIG_LINE_BYTES = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpec:
    """One way to fail, and when.

    Args:
        kind: which.
        at: N, or None for the kind's own default.
        times: only the first so many requests that meet this fault; None is all.
        requests: only requests from first to last (both included, from 0) of those that meet it.
        from_s: only from so many seconds after the provider started.
        until_s: only until then.
        status: HTTP status, or the code inside an error object.
        retry_after: value of `Retry-After`, or "".
        code: error code.
        type: error type.
        message: error message, redirect location.
        param: the field blamed.
        header: one more response header, as `name:value`.
        form: variant of the kind.
        reason: finish reason.
        content_type: overrides the response's.
        for_s: seconds until it is over; None is for good.
        every_s: seconds between two signs of life.
        size_bytes: length of a big line.
        delta: bytes that a wrong length is off by.
        alias: the common error response that this is; each format has its own words for it.
    """

    kind: Misdeed
    at: int | None = None
    times: int | None = None
    requests: tuple[int, int] | None = None
    from_s: float = 0.0
    until_s: float | None = None
    status: int = 500
    retry_after: str = ""
    code: str = ""
    type: str = ""
    message: str = ""
    param: str = ""
    header: str = ""
    form: str = ""
    reason: str = "error"
    content_type: str = ""
    for_s: float | None = None
    every_s: float = 1.0
    size_bytes: int = DEFAULT_BIG_LINE_BYTES
    delta: int = 1_000
    alias: str = ""

    def applies(self, use: int, elapsed_s: float) -> bool:
        """Whether it strikes.

        Args:
            use: how many requests met this fault before, from 0.
            elapsed_s: seconds since the provider started.
        """
        first, last = self.requests or (0, use)
        in_count = (self.times is None or use < self.times) and first <= use <= last
        return in_count and self.from_s <= elapsed_s < (self.until_s or float("inf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Directives:
    """All that one text in the mini language says; None leaves the server's own setting.

    Args:
        faults: the first that applies strikes.
        prefix: behaviour towards an assistant prefix.
        instruct: behaviour towards a prefix with a nudge.
        tokens_per_s: pace.
        first_token_s: delay of the first token in seconds.
        write_bytes: size of the writes.
        call: the tool to call after the text, if the request offers it; "" is the first one.
    """

    faults: tuple[FaultSpec, ...] = ()
    prefix: str | None = None
    instruct: str | None = None
    tokens_per_s: float | None = None
    first_token_s: float | None = None
    write_bytes: int | None = None
    call: str | None = None


ALIASES: Final[Mapping[str, FaultSpec]] = {
    "rate_limit": FaultSpec(
        kind=Misdeed.STATUS,
        alias="rate_limit",
        status=429,
        type="rate_limit_error",
        code="rate_limit_exceeded",
        message="Rate limit reached for requests.",
    ),
    "context_length": FaultSpec(
        kind=Misdeed.STATUS,
        alias="context_length",
        status=400,
        type="invalid_request_error",
        code="context_length_exceeded",
        param="messages",
        message="This model's maximum context length is 4096 tokens.",
    ),
    "content_policy": FaultSpec(
        kind=Misdeed.STATUS,
        alias="content_policy",
        status=400,
        type="invalid_request_error",
        code="content_policy_violation",
        message="Your request was rejected by the safety system.",
    ),
    "unauthorized": FaultSpec(
        kind=Misdeed.STATUS,
        alias="unauthorized",
        status=401,
        type="invalid_request_error",
        code="invalid_api_key",
        message="Incorrect API key provided.",
    ),
    "no_model": FaultSpec(
        kind=Misdeed.STATUS,
        alias="no_model",
        status=404,
        type="invalid_request_error",
        code="model_not_found",
        message="The model does not exist.",
    ),
}
"""Names for common error responses, in the words of OpenAI."""


def in_words(fault: FaultSpec, words: Mapping[str, FaultSpec]) -> FaultSpec:
    """A common error response in a format's own words; what a directive has changed stays.

    Args:
        fault: any fault.
        words: alias to the format's own version of it.
    """
    theirs, mine = ALIASES.get(fault.alias), words.get(fault.alias)
    if theirs is None or mine is None:
        return fault
    names = [field.name for field in fields(FaultSpec) if field.name != "alias"]
    own = {n: getattr(mine, n) for n in names if getattr(fault, n) == getattr(theirs, n)}
    return replace(fault, **own)


def _window(value: str) -> tuple[int, int]:
    first, _, last = value.partition("-")
    return int(first), int(last or first)


def _behaviour(value: str) -> str:
    if value not in _BEHAVIOURS:
        raise ValueError
    return value


_BEHAVIOURS: Final = ("refuse", *BEHAVIOURS)
_WANTED: Final[Mapping[Callable[[str], Any], str]] = {
    int: "a whole number",
    float: "a number",
    _window: "a number, or a range such as 2-5",
    _behaviour: f"one of {', '.join(_BEHAVIOURS)}",
}
"""What a value should have been, by what reads it."""
_FAULT_KEYS: Final[Mapping[str, Callable[[str], Any]]] = {
    "at": int,
    "times": int,
    "requests": _window,
    "from_s": float,
    "until_s": float,
    "status": int,
    "retry_after": str,
    "code": str,
    "type": str,
    "message": str,
    "param": str,
    "header": str,
    "form": str,
    "reason": str,
    "content_type": str,
    "for_s": float,
    "every_s": float,
    "size_bytes": int,
    "delta": int,
}
_SETTINGS: Final[Mapping[str, Callable[[str], Any]]] = {
    "prefix": _behaviour,
    "instruct": _behaviour,
    "tokens_per_s": float,
    "first_token_s": float,
    "write_bytes": int,
    "call": str,
}


def parse_directives(text: str) -> Directives:
    """Read a text in the mini language.

    Args:
        text: directives with `;` between them; empty, or `-`, says nothing.

    Returns:
        What it says.

    Raises:
        ValueError: it is no such text; the message says what is wrong.
    """
    faults: list[FaultSpec] = []
    settings: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name = part.partition("=")[0]
        if part == "-":
            continue
        if name in _SETTINGS and "," not in part:
            settings[name] = _convert(_SETTINGS[name], name, part.partition("=")[2])
        else:
            faults.append(parse_fault(part))
    return Directives(faults=tuple(faults), **settings)


def parse_fault(text: str) -> FaultSpec:
    """Read one fault, such as `cut@40` or `status=429,retry_after=2`.

    Raises:
        ValueError: there is no such fault, or a value is of the wrong type.
    """
    head, *pairs = text.strip().split(",")
    name, at = _split_head(head)
    if name.startswith("status="):
        pairs = [name, *pairs]
        name = "status"
    base = ALIASES.get(name) or FaultSpec(kind=_kind(name))
    values = dict(_pair(pair) for pair in pairs)
    if at is not None:
        values["at"] = _convert(int, name, at, mark="@")
    fault = replace(base, **values)
    _check_form(fault)
    return fault


def _check_form(fault: FaultSpec) -> None:
    forms = FORMS.get(fault.kind, ())
    if fault.form and fault.form not in forms:
        raise ValueError(
            f"form={fault.form!r}: {fault.kind} has the forms {', '.join(forms)}."
            if forms
            else f"form={fault.form!r}: {fault.kind} has only one form."
        )


def _split_head(head: str) -> tuple[str, str | None]:
    name, mark, at = head.partition("@")
    return name.strip(), at if mark else None


def _kind(name: str) -> Misdeed:
    try:
        return Misdeed(name)
    except ValueError:
        known = ", ".join([*Misdeed, *ALIASES, *_SETTINGS])
        raise ValueError(f"Unknown fault {name!r}; known: {known}.") from None


def _pair(pair: str) -> tuple[str, Any]:
    key, _, value = pair.partition("=")
    key = key.strip()
    if key not in _FAULT_KEYS:
        raise ValueError(f"Unknown key {key!r}; known: {', '.join(_FAULT_KEYS)}.")
    return key, _convert(_FAULT_KEYS[key], key, value)


def _convert(kind: Callable[[str], T], key: str, value: str, *, mark: str = "=") -> T:
    try:
        return kind(unquote(value.strip()))
    except ValueError:
        wanted = _WANTED[kind]
        raise ValueError(f"{key}{mark}{value}: behind the {mark} stands {wanted}.") from None
