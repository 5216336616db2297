"""`POST /v1/chat/completions`: OpenAI's face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from router.api.face import Origin, canonical
from router.core.request import ChatRequest
from router.core.sse import encode_comment
from router.wire.openai import ChunkWriter, CompletionFold, error_object, parse_chat_request


class ChatFace:
    """Chat completions; a `router.api.face.Face`."""

    salt = b""
    always_usage = False
    sign_of_life = encode_comment(b"waiting")
    """A comment. No blank line follows it, since some SDKs take one for an empty event."""

    def parse(self, body: bytes, headers: Mapping[str, str]) -> ChatRequest:  # noqa: ARG002
        """See `Face.parse`."""
        return parse_chat_request(body)

    def writer(self, origin: Origin, model: str) -> ChunkWriter:
        """See `Face.writer`."""
        return ChunkWriter(
            completion_id=_completion_id(origin), created=origin.created, fallback_model=model
        )

    def fold(self, origin: Origin, model: str) -> CompletionFold:
        """See `Face.fold`."""
        return CompletionFold(
            completion_id=_completion_id(origin), created=origin.created, fallback_model=model
        )

    def headers(self, origin: Origin) -> list[tuple[bytes, bytes]]:  # noqa: ARG002
        """None of its own."""
        return []

    def clean(self, result: dict[str, Any], superseded: Sequence[tuple[int, int]]) -> None:
        """See `Face.clean`."""
        message = result["choices"][0]["message"]
        message["content"] = canonical(message["content"] or "", superseded)

    def error(
        self,
        message: str,
        *,
        status: int,  # noqa: ARG002 - the type says it
        type: str,  # noqa: A002 - OpenAI's own word on the wire
        param: str | None,
        code: str | None,
        router: Mapping[str, Any] | None = None,
        partial: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """See `Face.error`."""
        body = error_object(message, type=type, param=param, code=code, router=router)
        if partial is not None:
            body["error"]["partial"] = partial
        return body


def _completion_id(origin: Origin) -> str:
    return f"chatcmpl-{origin.stream_id}"
