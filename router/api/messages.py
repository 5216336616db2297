"""`POST /v1/messages`: Anthropic's face, and the count of tokens beside it."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from router.api.asgi import (
    ClientGone,
    Receive,
    Scope,
    Send,
    headers_of,
    read_body,
    send_error,
    send_json,
)
from router.api.auth import authorize
from router.api.endpoint import SCHEMA_ASIDE_BYTES, draining_error, internal_error, route_of
from router.api.face import Origin, canonical
from router.api.fit import fit
from router.api.serving import Generation, Serving
from router.core.faults import Fault, Verdict
from router.core.request import ChatRequest
from router.engine.counting import count_tokens
from router.engine.route import Route, Target
from router.errors import RequestError
from router.wire.anthropic import (
    PING,
    MessageFold,
    MessageWriter,
    error_object,
    error_type,
    parse_count_request,
    parse_messages_request,
)

_PARAMS: Final = (
    (re.compile(r"^tools\[(\d+)\]\.function\.parameters"), r"tools[\1].input_schema"),
    (re.compile(r"^tools\[(\d+)\]\.function\."), r"tools[\1]."),
    (re.compile(r"^response_format\.json_schema\.schema"), "output_config.format.schema"),
    (re.compile(r"^response_format"), "output_config.format"),
    (re.compile(r"^stop\b"), "stop_sequences"),
)
"""Fields by the names of chat completions, which checks for all formats use, and by their own."""

_log = logging.getLogger("router.api")


class MessagesFace:
    """Messages; a `router.api.face.Face`."""

    salt = b"anthropic\n"
    always_usage = True
    sign_of_life = PING
    """The format's own; its clients pass over it."""

    def parse(self, body: bytes, headers: Mapping[str, str]) -> ChatRequest:
        """See `Face.parse`."""
        return parse_messages_request(body, headers)

    def writer(self, origin: Origin, model: str) -> MessageWriter:
        """See `Face.writer`."""
        return MessageWriter(message_id=_message_id(origin), fallback_model=model)

    def fold(self, origin: Origin, model: str) -> MessageFold:
        """See `Face.fold`."""
        return MessageFold(message_id=_message_id(origin), fallback_model=model)

    def headers(self, origin: Origin) -> list[tuple[bytes, bytes]]:
        """`request-id`, which its SDKs show beside an error."""
        return [(b"request-id", f"req_{origin.stream_id}".encode())]

    def clean(self, result: dict[str, Any], superseded: Sequence[tuple[int, int]]) -> None:
        """See `Face.clean`: text may stand in several blocks."""
        kept = []
        start = 0
        for block in result["content"]:
            if block["type"] == "text":
                end = start + len(block["text"])
                inside = [
                    (max(first, start) - start, min(last, end) - start)
                    for first, last in superseded
                    if first < end and last > start
                ]
                start = end
                block["text"] = canonical(block["text"], inside)
                if not block["text"]:
                    continue
            kept.append(block)
        result["content"] = kept

    def error(
        self,
        message: str,
        *,
        status: int,
        type: str,  # noqa: A002, ARG002 - OpenAI's own word; here the status decides
        param: str | None,
        code: str | None,
        router: Mapping[str, Any] | None = None,
        partial: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """See `Face.error`."""
        own = _own_name(param)
        if param is not None and own != param:
            message = message.replace(param, str(own))
        body = error_object(message, type=error_type(status), param=own, code=code, router=router)
        if partial is not None:
            body["error"]["partial"] = partial
        return body


def _own_name(param: str | None) -> str | None:
    for pattern, own in _PARAMS if param is not None else ():
        name, found = pattern.subn(own, str(param), count=1)
        if found:
            return name
    return param


def _message_id(origin: Origin) -> str:
    return f"msg_{origin.stream_id}"


class CountTokens:
    """`POST /v1/messages/count_tokens`, where a target of the route can count.

    Args:
        serving: what is being served.
        face: the format, for errors.
    """

    def __init__(self, serving: Serving, face: MessagesFace) -> None:
        self._serving = serving
        self._face = face

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Args:
            scope: of the request.
            receive: its body.
            send: takes the response.
        """
        headers = headers_of(scope)
        generation = self._serving.generation
        async with generation.hold():
            try:
                tokens = await self._count(generation, headers, receive)
            except RequestError as error:
                await send_error(send, error, self._face)
            except ClientGone:
                pass
            except Exception:  # noqa: BLE001 - a bug of ours, and the client is told all the same
                _log.exception("a count of tokens failed inside the router")
                await send_error(send, internal_error(), self._face)
            else:
                await send_json(send, 200, {"input_tokens": tokens})

    async def _count(
        self, generation: Generation, headers: Mapping[str, str], receive: Receive
    ) -> int:
        authorize(generation, headers)
        if self._serving.draining:
            raise draining_error()
        clock = self._serving.engine.clock
        body = await read_body(receive, headers, generation.settings.max_body_bytes, clock)
        read = functools.partial(_read_count, generation, headers, body)
        aside = len(body) > SCHEMA_ASIDE_BYTES
        request, route = await asyncio.to_thread(read) if aside else read()
        found = await count_tokens(request, route, clock)
        if isinstance(found, int):
            return found
        raise _no_count(route, found)


def _read_count(
    generation: Generation, headers: Mapping[str, str], body: bytes
) -> tuple[ChatRequest, Route]:
    """What is to be counted, and its route with those targets that can be told all of it."""
    request = parse_count_request(body, headers)
    return request, fit(request, route_of(generation, request.model)).route


def _no_count(route: Route, failed: Sequence[tuple[Target, Fault]]) -> RequestError:
    if not failed:
        return RequestError(
            f"No target of the route {route.name!r} counts tokens.",
            status=404,
            param="model",
            code="count_unsupported",
            headers=(("x-should-retry", "false"),),
        )
    target, fault = failed[0]
    verdict = fault.verdict is Verdict.REQUEST and fault.status is not None
    return RequestError(
        f"{target.name} could not count the tokens: {fault.message}",
        status=fault.status if verdict and fault.status is not None else 502,
        type="invalid_request_error" if verdict else "server_error",
        param=fault.param or None,
        code=fault.code or "count_failed",
        headers=(("x-should-retry", "false"),),
    )
