"""How long to wait, in every notation that was seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.providers.waits import MAX_RETRY_AFTER_S, retry_after_s

DATE = "Thu, 01 Jan 2026 00:00:00 GMT"  # 1767225600


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "1e9"}, MAX_RETRY_AFTER_S),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:09 GMT", "date": DATE}, 9.0),
        ({"retry-after": "Wed, 31 Dec 2025 23:00:00 GMT", "date": DATE}, 0.0),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:09 GMT"}, None),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "1", "x-ratelimit-reset-requests": "9s"}, 1.0),
        ({"x-ratelimit-reset-requests": "1s"}, 1.0),
        ({"x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-reset-tokens": "17ms"}, 0.017),
        ({"x-ratelimit-reset-tokens": "2m59.56s"}, 179.56),
        ({"x-ratelimit-reset-tokens": "1h2m3s"}, 3723.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "2s"}, 2.0),
        # Only the limit that is used up is waited for.
        (
            {
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-tokens": "5m0s",
                "x-ratelimit-remaining-tokens": "900",
            },
            1.0,
        ),
        (
            {"x-ratelimit-reset-requests": "1s", "x-ratelimit-remaining-requests": "12"},
            None,
        ),
        ({"x-ratelimit-reset": "30"}, 30.0),
        ({"x-ratelimit-reset": "1767225610", "date": DATE}, 10.0),
        ({"x-ratelimit-reset": "1767225610500", "date": DATE}, 10.5),
        ({"x-ratelimit-reset": "1767225610500"}, None),
        ({"x-ratelimit-reset": "1767225500", "date": DATE}, None),
        (
            {"anthropic-ratelimit-tokens-reset": "2026-01-01T00:00:20Z", "date": DATE},
            20.0,
        ),
    ],
)
def test_headers(headers: dict[str, str], wait: float | None) -> None:
    found = retry_after_s(headers)
    assert found == (None if wait is None else pytest.approx(wait))


@pytest.mark.parametrize(
    ("words", "wait"),
    [
        ("Please try again in 7.66s. Visit us.", 7.66),
        ("Please try again in 1m2.5s.", 62.5),
        ("Please try again in 250ms.", 0.25),
        ("Please retry after 6 seconds.", 6.0),
        ("please try again after 1 seconds", 1.0),
        ("Please wait 10 sec", 10.0),
        ("Please try again later.", None),
        ("retry 3 times", None),
    ],
)
def test_words(words: str, wait: float | None) -> None:
    assert retry_after_s({}, words=words) == wait


def test_a_header_is_believed_before_a_sentence() -> None:
    assert retry_after_s({"retry-after": "2"}, words="try again in 9s") == 2.0


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=80))
def test_anything_else_is_no_wait_and_no_error(value: str, date: str, words: str) -> None:
    for name in ("retry-after", "retry-after-ms", "x-ratelimit-reset", "ratelimit-reset"):
        found = retry_after_s({name: value, "date": date}, words=words)
        assert found is None or 0 <= found <= MAX_RETRY_AFTER_S
