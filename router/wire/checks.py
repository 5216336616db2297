"""Checks of a client's request that every format needs, and the sentences that refuse one.

Each check takes a value and the path of its field, and is silent if the value is right. Whatever is
refused is a `RequestError` of status 400 that names the field; each format gives it its own shape.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

from router.errors import RequestError
from router.wire.jsontext import Json, deeper_than, mend

MAX_DEPTH = 128
"""Bound on the nesting of a body: tool schemas nest a few dozen levels, a hostile body more."""
MAX_MESSAGES = 10_000
"""Bound on messages: each costs a check; no model's window holds as many."""
MAX_TOOLS = 1_024
"""Bound on tools: OpenAI takes 128, others more."""
MAX_TOKENS = 100_000_000
"""Bound on a token budget: beyond any model, within any provider's integer."""
MAX_MODEL_CHARS = 256
"""Bound on a model's name, which is repeated in logs and errors."""
MAX_QUOTED_CHARS = 64
"""Bound on a client's own value when an error quotes it."""

Object: TypeAlias = Mapping[str, Any]
"""A JSON object that is only read."""
_KINDS: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number with a fraction",
    type(None): "null",
}
_BASE64: Final = string.ascii_letters.encode() + string.digits.encode() + b"+/"
_BYTE: Final = re.compile(r"\(byte (\d+)\)")


def load_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object.

    A lone surrogate in it is mended, since a chat's history may hold half an emoji.

    Args:
        body: as it came; a byte order mark is passed over.

    Raises:
        RequestError: it is no JSON (where it breaks is said), no object, or nested too deep.
    """
    body = body.removeprefix(b"\xef\xbb\xbf")
    try:
        raw = msgspec.json.decode(body)
    except RecursionError:
        _refuse_depth()
    except msgspec.DecodeError as exc:
        raw = _load_surrogates(body, exc)
    if not isinstance(raw, dict):
        refuse(f"The body must be a JSON object, not {kind_of(raw)}.", None, "invalid_type")
    if deeper_than(raw, MAX_DEPTH):
        _refuse_depth()
    return raw


def _load_surrogates(body: bytes, exc: msgspec.DecodeError) -> Json:
    """A lone surrogate (a cut emoji in a chat's history) is mended; all else stays malformed."""
    try:
        if rb"\u" not in body:
            raise exc
        lenient = json.loads(body, parse_constant=_no_constant)
        text = json.dumps(lenient, ensure_ascii=False, separators=(",", ":"))
        return msgspec.json.decode(mend(text))
    except (ValueError, RecursionError):
        _refuse_json(body, str(exc))


def _refuse_json(body: bytes, what: str) -> NoReturn:
    found = _BYTE.search(what)
    position = int(found[1]) if found else len(body)
    try:
        body.decode()
    except UnicodeDecodeError as exc:
        position = exc.start
    line = body.count(b"\n", 0, position) + 1
    column = position - body.rfind(b"\n", 0, position)
    what = _BYTE.sub("", what).strip().rstrip(".")
    where = f"at byte {position} (line {line}, column {column})"
    refuse(f"The body is not valid JSON: {what}, {where}.", None, "invalid_json")


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def model_name(raw: Object) -> str:
    """The field `model` of a body: a name, not empty and bounded.

    Raises:
        RequestError: it is missing, or no such name.
    """
    model = required(raw, "model")
    check_string(model, "model")
    if not model:
        refuse("'model' is empty: name the model to use.", "model", "invalid_value")
    if len(model) > MAX_MODEL_CHARS:
        refuse_size("model", "characters", MAX_MODEL_CHARS, len(model))
    return str(model)


def messages_of(raw: Object, check: Callable[[Json, str], None]) -> tuple[Object, ...]:
    """The field `messages` of a body: an array, not empty and bounded.

    Args:
        raw: the body.
        check: of one message.

    Raises:
        RequestError: it is missing, or no such array, or `check` says so.
    """
    messages = required(raw, "messages")
    check_array(messages, "messages")
    if not messages:
        refuse("'messages' is empty: send at least one message.", "messages", "empty_array")
    if len(messages) > MAX_MESSAGES:
        refuse_size("messages", "items", MAX_MESSAGES, len(messages))
    for number, message in enumerate(messages):
        check(message, f"messages[{number}]")
    return tuple(messages)


def check_string(value: Json, where: str) -> None:
    """Text."""
    if not isinstance(value, str):
        refuse_type(value, where, "a string")


def check_word(value: Json, where: str, allowed: tuple[str, ...]) -> None:
    """One of the words `allowed`."""
    check_string(value, where)
    if value not in allowed:
        refuse_word(value, where, allowed)


def check_base64(value: Json, where: str) -> None:
    """Bytes in standard base64, at least one."""
    check_string(value, where)
    if not is_base64(value):
        message = f"'{where}' must be data in standard base64: one line, with its padding."
        refuse(message, where, "invalid_base64")


def is_base64(text: str) -> bool:
    """Is a text standard base64 of at least one byte, with its padding and nothing else?

    Args:
        text: of any length. It is not decoded: ten times as fast, and a picture has megabytes.
    """
    if not text or len(text) % 4 or not text.isascii():
        return False
    rest = text.encode().translate(None, _BASE64)
    return rest in (b"", b"=", b"==") and text.endswith(rest.decode())


def check_object(value: Json, where: str) -> None:
    """An object."""
    if not isinstance(value, dict):
        refuse_type(value, where, "an object")


def check_array(value: Json, where: str) -> None:
    """An array."""
    if not isinstance(value, list):
        refuse_type(value, where, "an array")


def check_objects(value: Json, where: str) -> list[dict[str, Any]]:
    """An array of objects, which it gives."""
    check_array(value, where)
    for number, item in enumerate(value):
        check_object(item, f"{where}[{number}]")
    return list(value)


def check_boolean(value: Json, where: str) -> None:
    """True or false."""
    if not isinstance(value, bool):
        refuse_type(value, where, "a boolean")


def check_number(value: Json, where: str) -> None:
    """A number; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse_type(value, where, "a number")


def number_check(low: float, high: float) -> Callable[[Json, str], None]:
    """A check for a number in a range.

    Args:
        low: smallest that is right.
        high: largest that is right.
    """

    def check(value: Json, where: str) -> None:
        check_number(value, where)
        if not low <= value <= high:
            message = f"'{where}' must be from {low:g} to {high:g}, but is {quote(value)}."
            refuse(message, where, "invalid_value")

    return check


def integer_check(low: int, high: int | None = None) -> Callable[[Json, str], None]:
    """A check for a whole number in a range.

    Args:
        low: smallest that is right.
        high: largest, or None.
    """

    def check(value: Json, where: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            refuse_type(value, where, "an integer")
        if value < low:
            message = f"'{where}' must be at least {low}, but is {quote(value)}."
            refuse(message, where, "integer_below_min_value")
        if high is not None and value > high:
            message = f"'{where}' must be at most {high}, but is {quote(value)}."
            refuse(message, where, "integer_above_max_value")

    return check


def required(holder: Object, name: str, where: str = "") -> Json:
    """A field that must be there.

    Args:
        holder: object that holds it.
        name: the field's.
        where: path of the object, "" for the body itself.

    Returns:
        Its value, which is not null.

    Raises:
        RequestError: it is missing or null.
    """
    value = holder.get(name)
    if value is None:
        param = f"{where}.{name}" if where else name
        refuse(f"'{param}' is required and missing.", param, "missing_required_parameter")
    return value


def refuse_type(value: Json, param: str, wanted: str) -> NoReturn:
    """The value of `param` is of another kind than `wanted`, a noun with its article."""
    refuse(f"'{param}' must be {wanted}, not {kind_of(value)}.", param, "invalid_type")


def refuse_word(value: str, param: str, allowed: tuple[str, ...]) -> NoReturn:
    """The value of `param` is none of the words `allowed`."""
    names = ", ".join(f"'{name}'" for name in allowed)
    refuse(f"'{param}' is {quote(value)}; it must be one of {names}.", param, "invalid_value")


def refuse_size(param: str, unit: str, most: int, found: int) -> NoReturn:
    """`param` holds more characters or items (the `unit`) than `most`."""
    code = "string_above_max_length" if unit == "characters" else "array_above_max_length"
    refuse(f"'{param}' may have at most {most} {unit}, but has {found}.", param, code)


def _refuse_depth() -> NoReturn:
    refuse(f"The body is nested in more than {MAX_DEPTH} levels.", None, "nested_too_deep")


def refuse(message: str, param: str | None, code: str) -> NoReturn:
    """The request is wrong: 400 with a sentence, the field at fault and a stable code."""
    raise RequestError(message, param=param, code=code)


def kind_of(value: Json) -> str:
    """What a JSON value is, as a noun with its article."""
    return _KINDS.get(type(value), type(value).__name__)


def quote(value: Json) -> str:
    """A client's own value, in quotation marks and bounded."""
    text = value if isinstance(value, str) else f"{value:.6g}"
    return f"'{text[:MAX_QUOTED_CHARS]}…'" if len(text) > MAX_QUOTED_CHARS else f"'{text}'"
