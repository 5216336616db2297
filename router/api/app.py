"""The application: one door, the streaming routes right behind it, FastAPI for everything else.

There is no page of API documentation: what FastAPI would generate knows nothing of the one route
that matters, and a page that loads scripts from elsewhere has no place beside keys. `docs/wire.md`
is the documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from router import __version__
from router.api.admin import add_admin, authorize_admin, is_admin
from router.api.asgi import Receive, Scope, Send, headers_of, send_error
from router.api.auth import authorize
from router.api.chat import ChatFace
from router.api.endpoint import Answers, internal_error, unknown_model
from router.api.face import Face
from router.api.messages import CountTokens, MessagesFace
from router.api.serving import Serving
from router.errors import RequestError

MAX_QUOTED_CHARS = 200
"""Bound on a client's own words when an error quotes them."""

_CHAT = ChatFace()
_MESSAGES = MessagesFace()

_CODES = {404: "not_found", 405: "method_not_allowed"}
_SERVED = ("/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/models")
"""What a wrong path may have meant."""


class App:
    """The ASGI application.

    Args:
        serving: what is being served.
    """

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._posts: Mapping[str, Answers | CountTokens] = {
            "/v1/chat/completions": Answers(serving, _CHAT),
            "/v1/messages": Answers(serving, _MESSAGES),
            "/v1/messages/count_tokens": CountTokens(serving, _MESSAGES),
        }
        self._rest = make_rest(serving)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Args:
            scope: of the request.
            receive: its messages.
            send: takes the response.
        """
        path = scope.get("path", "")
        endpoint = self._posts.get(path)
        if endpoint is not None and scope["method"] == "POST":
            await endpoint(scope, receive, send)
            return
        try:
            if path == "/v1" or path.startswith("/v1/"):
                # Whatever is there, or not: who has no key learns nothing.
                authorize(self._serving.generation, headers_of(scope))
            elif is_admin(path):
                authorize_admin(self._serving.generation, scope)
            if endpoint is not None:
                raise _method_not_allowed(scope)
        except RequestError as error:
            await send_error(send, error, _face_for(path, headers_of(scope)))
        else:
            await self._rest(scope, receive, send)


def make_rest(serving: Serving) -> FastAPI:
    """Models, health and readiness, and what the owner may ask.

    Args:
        serving: what is being served.

    Returns:
        A FastAPI application.
    """
    app = FastAPI(
        title="seam-router",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )

    @app.exception_handler(RequestError)
    async def refused(request: Request, error: RequestError) -> JSONResponse:
        return _response(request, error)

    @app.exception_handler(HTTPException)
    async def not_here(request: Request, error: HTTPException) -> JSONResponse:
        path = request.url.path[:MAX_QUOTED_CHARS]
        return _response(
            request,
            RequestError(
                f"{request.method} {path}: {error.detail}.{_hint(path)}",
                status=error.status_code,
                code=_CODES.get(error.status_code),
                headers=tuple((error.headers or {}).items()),
            ),
        )

    @app.exception_handler(Exception)
    async def broken(request: Request, _: Exception) -> JSONResponse:
        return _response(request, internal_error())  # the server logs the traceback

    @app.get("/v1/models")
    async def models(request: Request) -> dict[str, Any]:
        """The routes, as models."""
        show = _model_for(request)
        names = serving.generation.routes
        listed = [show(serving, name) for name in names]
        if show is _model:
            return {"object": "list", "data": listed}
        ids = [one["id"] for one in listed]
        return {
            "data": listed,
            "has_more": False,
            "first_id": ids[0] if ids else None,
            "last_id": ids[-1] if ids else None,
        }

    @app.get("/v1/models/{name:path}")
    async def model(name: str, request: Request) -> dict[str, Any]:
        """One route, as a model."""
        if name not in serving.generation.routes:
            raise unknown_model(serving.generation, name)
        return _model_for(request)(serving, name)

    @app.api_route("/health", methods=["GET", "HEAD"])
    async def health() -> dict[str, str]:
        """The process is alive."""
        return {"status": "ok", "version": __version__}

    @app.api_route("/ready", methods=["GET", "HEAD"])
    async def ready() -> JSONResponse:
        """New streams are taken. A record store that is away does not make a router unready."""
        store = serving.engine.store
        status = "draining" if serving.draining else "ready"
        code = 503 if serving.draining else 200
        record = {**store.stats, "advice": list(store.advice)}
        return JSONResponse({"status": status, "record": record}, status_code=code)

    add_admin(app, serving)
    return app


def _response(request: Request, error: RequestError) -> JSONResponse:
    body = _face_for(request.url.path, request.headers).error(
        error.message, status=error.status, type=error.type, param=error.param, code=error.code
    )
    return JSONResponse(body, status_code=error.status, headers=dict(error.headers))


def _model(serving: Serving, name: str) -> dict[str, Any]:
    created = int(serving.generation.created_unix_s)
    return {"id": name, "object": "model", "created": created, "owned_by": "router"}


def _messages_model(serving: Serving, name: str) -> dict[str, Any]:
    created = datetime.fromtimestamp(int(serving.generation.created_unix_s), UTC)
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _model_for(request: Request) -> Callable[[Serving, str], dict[str, Any]]:
    """Anthropic's clients read models in their own shape."""
    return _messages_model if _is_anthropics(request.headers) else _model


def _is_anthropics(headers: Mapping[str, str]) -> bool:
    """Every request of Anthropic's clients names a version."""
    return "anthropic-version" in headers


def _face_for(path: str, headers: Mapping[str, str]) -> Face:
    """The format of an error: the path's, or on a path of nobody's the client's."""
    if path.startswith("/v1/chat/"):
        return _CHAT
    return _MESSAGES if path.startswith("/v1/messages") or _is_anthropics(headers) else _CHAT


def _hint(path: str) -> str:
    """What a path that is not there was meant to be: SDKs differ in who adds the version."""
    bare = path.rstrip("/")
    if bare.startswith("/v1/v1/") and bare.removeprefix("/v1") in _SERVED:
        return f" Did you mean {bare.removeprefix('/v1')}? Leave one /v1 out of the base URL."
    if f"/v1{bare}" in _SERVED:
        return f" Did you mean /v1{bare}? Add /v1 to the base URL."
    return f" Did you mean {bare}?" if bare != path and bare in _SERVED else ""


def _method_not_allowed(scope: Scope) -> RequestError:
    return RequestError(
        f"{scope['path']} takes POST, not {scope['method']}.",
        status=405,
        code="method_not_allowed",
        headers=(("allow", "POST"),),
    )
