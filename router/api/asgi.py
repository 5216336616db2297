"""The few ASGI words that the streaming routes speak without a framework, and nothing more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

import msgspec

from router.api.face import Face
from router.engine.clock import Clock, Expired, Watch
from router.errors import RequestError

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

BODY_IDLE_S = 30.0
"""How long a request's body may stand still before it is given up, in seconds."""

_JSON = (b"content-type", b"application/json")


class ClientGone(Exception):
    """The client closed its connection before its request was whole."""


_LISTS: Final = frozenset({"anthropic-beta", "x-router-events"})
"""Headers that may come in several lines, which are one list then: RFC 9110, section 5.3. Some SDKs
send a line for each beta."""


def headers_of(scope: Scope) -> dict[str, str]:
    """Request headers by lower-case name; of a repeated one the last, or all if it is a list.

    Args:
        scope: of the request.
    """
    found: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        found[name] = f"{found[name]},{value}" if name in found and name in _LISTS else value
    return found


async def read_body(
    receive: Receive, headers: Mapping[str, str], max_bytes: int, clock: Clock
) -> bytes:
    """The whole request body.

    Args:
        receive: of the request.
        headers: of the request.
        max_bytes: bound on the body.
        clock: where time comes from.

    Returns:
        The bytes.

    Raises:
        RequestError: 413, before a byte too many is kept; 408 if it stands still.
        ClientGone: the client left first.
    """
    announced = headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    watch = Watch(clock)
    try:
        return await _whole(receive, max_bytes, clock, watch)
    except Expired:
        raise _too_slow() from None
    finally:
        watch.stop()


async def _whole(receive: Receive, max_bytes: int, clock: Clock, watch: Watch) -> bytes:
    body = bytearray()
    while True:
        watch.due_s = clock.now_s() + BODY_IDLE_S
        with watch:
            message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
        if not message.get("more_body", False):
            return bytes(body)


def _too_slow() -> RequestError:
    return RequestError(
        f"The request body stood still for {BODY_IDLE_S:g} s.",
        status=408,
        code="request_timeout",
        headers=(("connection", "close"),),
    )


def _too_large(max_bytes: int) -> RequestError:
    return RequestError(
        f"The request body is larger than the {max_bytes} bytes that this server takes. "
        "Send less, or raise server.max_body_bytes.",
        status=413,
        code="request_too_large",
        headers=(("connection", "close"),),
    )


async def send_json(
    send: Send, status: int, content: object, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """A whole JSON response.

    Args:
        send: of the request.
        status: HTTP status.
        content: to be encoded.
        headers: further headers, `x-router-stream-id` and the like.
    """
    body = msgspec.json.encode(content)
    length = (b"content-length", str(len(body)).encode())
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [_JSON, length, *headers],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: RequestError, face: Face) -> None:
    """An error response in the client's own shape.

    Args:
        send: of the request.
        error: what is wrong with the request.
        face: the client's format.
    """
    body = face.error(
        error.message,
        status=error.status,
        type=error.type,
        param=error.param,
        code=error.code,
    )
    headers = [(name.encode(), value.encode()) for name, value in error.headers]
    await send_json(send, error.status, body, headers)
