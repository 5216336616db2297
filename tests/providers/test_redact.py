"""No secret and no echo of the request leaves in a provider's words."""

from __future__ import annotations

import base64
import html
import json
import string
import unicodedata
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.providers.classify import Classifier
from router.providers.redact import MAX_REASON_CHARS, MAX_SCAN_CHARS, Redactor

# Characters of credentials in use; "[", "*" and "]" are the mark's own. With a digit, so that none
# is a word of our own sentences.
KEYS = st.text(
    alphabet=string.ascii_letters + string.digits + "-_.~+/=:!#$%&'\"\\<>?@^{|} ,;()",
    min_size=6,
    max_size=60,
).filter(lambda key: key == key.strip() and len(set(key)) > 2 and any(map(str.isdigit, key)))


def unicode_escaped(text: str) -> str:
    return "".join(f"\\u{ord(c):04X}" for c in text)


def numeric_entities(text: str) -> str:
    return "".join(f"&#{ord(c)};" if i % 2 else f"&#x{ord(c):x};" for i, c in enumerate(text))


def percent_encoded(text: str) -> str:
    return "".join(f"%{ord(c):02x}" for c in text)


DRESSES: list[Callable[[str], str]] = [
    str,
    lambda k: json.dumps(k)[1:-1],
    lambda k: json.dumps(json.dumps(k))[3:-3],
    lambda k: quote(k, safe=""),
    quote,
    quote_plus,
    lambda k: quote(quote(k, safe=""), safe=""),
    html.escape,
    unicode_escaped,
    numeric_entities,
    percent_encoded,
    lambda k: json.dumps(k).replace("/", "\\/")[1:-1],
]


@given(KEYS, st.sampled_from(DRESSES), st.text(max_size=80), st.text(max_size=80))
@example("sk-abc/def+ghi", DRESSES[2], "", "")
def test_a_configured_key_never_gets_through(
    key: str, dress: Callable[[str], str], before: str, after: str
) -> None:
    redact = Redactor([key])
    worn = dress(key)
    said = redact(f"{before}{worn}{after}")
    assert key not in said
    if before.isalpha() and after.isalpha():  # nothing beside it that could be taken for a part
        assert worn not in said


@given(KEYS, st.sampled_from(DRESSES), st.integers(0, MAX_SCAN_CHARS + 100))
def test_nor_does_its_beginning_at_the_edge_of_the_scan(
    key: str, dress: Callable[[str], str], at: int
) -> None:
    said = Redactor([key])("\u4e00" * at + dress(key) + "\u4e00" * 200)
    assert set(said) <= set("\u4e00[*]…")


@given(KEYS, st.sampled_from(["message", "code", "type", "param"]))
def test_nor_in_any_field_of_a_fault(key: str, field: str) -> None:
    classifier = Classifier(redact=Redactor([key]))
    body = json.dumps({"error": {field: f"was {key} indeed"}}).encode()
    for fault in (
        classifier.response(400, {}, body),
        classifier.response(307, {"location": f"https://h/{key}"}, b""),
        classifier.response(400, {}, f"<title>{html.escape(key)}</title>".encode()),
        classifier.error_object({"error": {"message": key, "metadata": {"raw": body.decode()}}}),
    ):
        assert all(key not in str(said) for said in (fault.message, fault.code, fault.type))
        assert key not in fault.param


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("key sk-proj-Ab12Cd34 is wrong", "key [***] is wrong"),
        ("key sk-ab****wxyz is wrong", "key [***] is wrong"),
        ("gsk_abcdefgh1234 and hf_abcdefgh1234", "[***] and [***]"),
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer [***]"),
        ("a bearer authentication is needed", "a bearer authentication is needed"),
        ("API key: missing", "API key: missing"),
        ("api_key='a1b2c3d4' given", "api_key='[***]' given"),
        ("see https://x.example/a?key=abc&b=1", "see https://x.example/a?key=[***]&b=1"),
        ("at https://me:pw@x.example/a", "at https://[***]@x.example/a"),
        ("digest " + "0f" * 32, "digest [***]"),
        ("token " + base64.b64encode(bytes(range(40))).decode(), "token [***]"),
        (
            "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJl",
            "token [***]",
        ),
    ],
)
def test_what_looks_like_a_credential(said: str, left: str) -> None:
    assert Redactor()(said) == left


@pytest.mark.parametrize(
    "said",
    [
        "The model `meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8` does not exist",
        "request 1b4e28ba-2fa1-11d2-883f-0016d3cca427 failed",
        "You requested 150000 tokens (149000 in the messages, 1000 in the completion).",
        "It can't be that the user's \"name\" isn't set.",
        "日本語のエラーメッセージです。",
    ],
)
def test_a_telling_reason_stays_whole(said: str) -> None:
    assert Redactor()(said) == said


@pytest.mark.parametrize(
    "said",
    [
        'Invalid content: "{prompt}"',
        "Invalid content: '{prompt}'",
        "Invalid content: `{prompt}`",
        'Invalid content: "{prompt}',
        "1 error [type=string_type, input_value='{prompt}', input_type=str]",
        "[{{'type': 'x', 'msg': 'bad', 'input': '{prompt}'}}]",
        '[{{"input": {{"a": "{prompt}"}}, "msg": "bad"}}]',
    ],
)
def test_an_echo_of_the_request_is_cut(said: str) -> None:
    prompt = (
        "my secret diary says that I never liked the neighbours and their loud dogs at all, ever"
    )
    assert "diary" not in Redactor()(said.format(prompt=prompt + "."))


def test_quotations_pair_up() -> None:
    prose = "this is the provider's own sentence, and however long it may be, it is no quotation"
    said = f'Field "a" is wrong: {prose}; see "b".'
    assert Redactor()(said) == said


def test_short_secrets_go_only_as_whole_words() -> None:
    assert Redactor(["none"])("nonesuch: none") == "nonesuch: [***]"
    assert Redactor(["", "  "])("a  b") == "a b"


def test_the_longer_secret_goes_first() -> None:
    assert Redactor(["abcdef", "abcdef-xyz123"])("abcdef-xyz123") == "[***]"


@given(st.text(max_size=2_000))
def test_result_is_bounded_one_printable_line(text: str) -> None:
    said = Redactor()(text)
    assert len(said) <= MAX_REASON_CHARS
    assert not {unicodedata.category(char) for char in said} & {"Cc", "Cs", "Zl", "Zp"}


def test_a_redactor_does_not_show_its_secrets() -> None:
    assert "abcdef" not in repr(Redactor(["abcdef"]))
