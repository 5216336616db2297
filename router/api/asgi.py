"""The few ASGI words that the streaming routes speak without a framework, and nothing more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, TypeAlias

import msgspec

from router.errors import RequestError
from router.wire.openai import error_object

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_JSON = (b"content-type", b"application/json")


class ClientGone(Exception):
    """The client closed its connection before its request was whole."""


def headers_of(scope: Scope) -> dict[str, str]:
    """Request headers by lower-case name; of a repeated one the last.

    Args:
        scope: of the request.
    """
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def read_body(receive: Receive, headers: Mapping[str, str], max_bytes: int) -> bytes:
    """The whole request body.

    Args:
        receive: of the request.
        headers: of the request.
        max_bytes: bound on the body.

    Returns:
        The bytes.

    Raises:
        RequestError: 413, before a byte too many is kept.
        ClientGone: the client left first.
    """
    announced = headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
        if not message.get("more_body", False):
            return bytes(body)


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
        headers: further headers.
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


async def send_error(send: Send, error: RequestError) -> None:
    """An error response in OpenAI's shape.

    Args:
        send: of the request.
        error: what is wrong with the request.
    """
    body = error_object(error.message, type=error.type, param=error.param, code=error.code)
    headers = ((name.encode(), value.encode()) for name, value in error.headers)
    await send_json(send, error.status, body, headers)
