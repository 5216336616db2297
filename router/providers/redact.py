"""What of a provider's words may leave the process: no credential, no echo, no flood.

A provider's reason goes into logs, errors and books. Providers print keys ("Incorrect API key
provided: sk-…"), URLs with signatures, and whole prompts in their validation errors. This module
removes them before anything else sees the text. Order matters: secrets first, bounds last, so that
no half of a secret is left at an edge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html.entities import codepoint2name

MAX_REASON_CHARS = 500
"""Bound of a provider's reason in a fault: two or three sentences, enough to act on."""
MAX_WORD_CHARS = 100
"""Bound of a machine-readable word (`code`, `type`, `param`): real ones stay under 60."""
MAX_SCAN_CHARS = 8_192
"""Bound of the text that is searched for secrets; what lies beyond is dropped unread."""
MAX_QUOTE_CHARS = 80
"""A quotation longer than this is taken for an echo of the request and cut."""
MIN_FREE_SECRET_CHARS = 6
"""A configured secret shorter than this ("none", "x") is replaced only where it stands as a whole
word: everywhere else it would eat ordinary prose."""

MARK = "[***]"
"""Stands where a secret stood. Shorter than any secret that is replaced everywhere, so it never
contains one."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_RUN = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_RUN_SEPARATORS = re.compile(r"[-_/+]")

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # Authorization headers in prose or dumps. A digit is asked for, so "bearer authentication" is
    # left alone.
    (re.compile(r"(?i)\b(bearer|basic)\s+(?=\S*\d)[A-Za-z0-9._~+/=*-]{8,}"), rf"\1 {MARK}"),
    # Keys with the prefixes that vendors print on them, also when half masked with asterisks.
    (re.compile(r"\b(?:sk|pk|rk|gsk|fw|hf|tgp|nvapi|csk|or)[-_][A-Za-z0-9_*-]{6,}"), MARK),
    (re.compile(r"\bxai-[A-Za-z0-9*]{12,}|\bAIza[A-Za-z0-9_-]{20,}"), MARK),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"), MARK),  # JWT
    # "API key provided: abcd****wxyz", `"api-key": "…"`. Asks for a digit or an asterisk.
    (
        re.compile(
            r"(?i)((?:api[ _-]?key|authorization|secret|password|access[ _-]?token)[^:=\n]{0,24}"
            r"[:=](?!//)\s*[\"'`]?)(?!\[\*)(?=[^\s\"'`]*[\d*])[^\s\"'`,;)}\]]{4,}"
        ),
        rf"\1{MARK}",
    ),
    # Query secrets and user info in URLs.
    (
        re.compile(
            r"(?i)([?&;](?:api[_-]?key|key|access[_-]?token|token|sig|signature|secret|"
            r"client[_-]?secret|password|auth|code|credential|x-amz-[a-z-]+)=)[^&;\s\"'<>]+"
        ),
        rf"\1{MARK}",
    ),
    (re.compile(r"(://)[^/\s@:]{1,256}:[^/\s@]{1,256}@"), rf"\1{MARK}@"),
)

_ECHOES: tuple[tuple[re.Pattern[str], str], ...] = (
    # pydantic's own words: `input_value='…', input_type=str`, and its error dictionaries.
    (re.compile(r"(input_value=).*?(?=, input_type=|\Z)", re.DOTALL), r"\1[…]"),
    (
        re.compile(
            r"([\"']input[\"']\s*:\s*)(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\{[^}]*\}?|"
            r"\[[^\]]*\]?|[^,}\]]+)"
        ),
        r"\1[…]",
    ),
)
_QUOTED = re.compile(
    # An apostrophe is a quotation mark only where no word precedes it.
    r"\"[^\"]*(?:\"|\Z)|`[^`]*(?:`|\Z)|“[^”]*(?:”|\Z)|«[^»]*(?:»|\Z)|(?<!\w)'[^']*(?:'|\Z)"
)

# Control characters, line separators, text direction overrides, lone surrogates: each can forge or
# break a line of a log.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")
_SPACES = re.compile(r"\s{2,}")
_ESCAPES = r"\\{0,4}"  # nested JSON doubles backslashes; four is three levels of nesting


def _char_pattern(char: str) -> str:
    """One character of a secret in every dress that JSON, URLs and HTML give it."""
    code = ord(char)
    dresses = [f"&#0{{0,4}}{code};", f"&#[xX]0{{0,4}}(?i:{code:x});"]
    if name := codepoint2name.get(code):
        dresses.append(f"&{name};")
    # The plain character last: of "%25", a secret that ends in "%" must not leave the "25".
    dresses += [r"\+"] if char == " " else []
    dresses.append(re.escape(char))
    percent = "".join(f"%(?:25)?(?i:{byte:02x})" for byte in char.encode("utf-8", "replace"))
    units = char.encode("utf-16-be", "surrogatepass")
    unicode_escape = "".join(
        rf"\\{{1,4}}u(?i:{units[i : i + 2].hex()})" for i in range(0, len(units), 2)
    )
    return f"(?:{unicode_escape}|{percent}|{_ESCAPES}(?:{'|'.join(dresses)}))"


def _secret_pattern(secret: str) -> re.Pattern[str]:
    body = "".join(_char_pattern(char) for char in secret)
    if len(secret) < MIN_FREE_SECRET_CHARS:
        body = rf"(?<!\w){body}(?!\w)"
    return re.compile(body)


def _mask_run(match: re.Match[str]) -> str:
    """A long unbroken run is a token, a digest or base64, unless its parts read like words."""
    run = match.group()
    if _UUID.match(run):
        return run  # request ids are what a provider's support asks for
    longest = max(_RUN_SEPARATORS.split(run), key=len)
    mixed = any(c.isdigit() for c in longest) and any(c.isalpha() for c in longest)
    return MARK if len(longest) >= (20 if mixed else 32) else run


def _cut_quote(match: re.Match[str]) -> str:
    quote = match.group()
    return quote if len(quote) <= MAX_QUOTE_CHARS + 2 else f"[… {len(quote)} characters]"


def bounded(text: str, limit: int) -> str:
    """Cut a text to at most `limit` characters, with an ellipsis where something is missing."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


class Redactor:
    """Removes what must not leave, from texts of any origin.

    Args:
        secrets: the credentials in use at this target; empty ones are ignored.
    """

    __slots__ = ("_edge", "_secrets")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # Longest first: a secret that contains another must not be broken up by it.
        found = sorted({s.strip() for s in secrets if s and s.strip()}, key=len, reverse=True)
        # A scan that stops in the middle of a (possibly escaped) secret gives its end away.
        self._edge = min(6 * len(found[0]) if found else 0, MAX_SCAN_CHARS - MAX_REASON_CHARS)
        self._secrets = tuple(_secret_pattern(secret) for secret in found)

    def __repr__(self) -> str:
        return f"Redactor(<{len(self._secrets)} secrets>)"

    def __call__(self, text: str, *, limit: int = MAX_REASON_CHARS) -> str:
        """The text without secrets, echoes and control characters.

        Args:
            text: anything, of any length.
            limit: greatest length of the result, in characters.
        """
        window = text[:MAX_SCAN_CHARS]
        for secret in self._secrets:
            window = secret.sub(MARK, window)
        if len(text) > MAX_SCAN_CHARS:
            window = window[: max(len(window) - self._edge, 0)]
        for pattern, replacement in (*_PATTERNS, *_ECHOES):
            window = pattern.sub(replacement, window)
        window = _RUN.sub(_mask_run, _QUOTED.sub(_cut_quote, window))
        window = _SPACES.sub(" ", _CONTROL.sub(" ", window)).strip()
        # Once more: what was joined by the steps above may read as a secret again.
        for secret in self._secrets:
            window = secret.sub(MARK, window)
        return bounded(window, limit)

    def word(self, text: str) -> str:
        """A machine-readable word, redacted and bounded to `MAX_WORD_CHARS`."""
        return self(text, limit=MAX_WORD_CHARS)
