"""The application: one door, the streaming routes right behind it, FastAPI for everything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import HTTPException
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from router import __version__
from router.api.asgi import Receive, Scope, Send, send_error
from router.api.chat import ChatCompletions, authorize
from router.api.serving import Serving
from router.errors import RequestError
from router.wire.openai import error_object


class App:
    """The ASGI application.

    Args:
        serving: what is being served.
    """

    def __init__(self, serving: Serving) -> None:
        self._streaming: Mapping[str, ChatCompletions] = {
            "/v1/chat/completions": ChatCompletions(serving)
        }
        self._rest = make_rest(serving)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Args:
            scope: of the request.
            receive: its messages.
            send: takes the response.
        """
        endpoint = self._streaming.get(scope.get("path", ""))
        if endpoint is None or scope["type"] != "http":
            await self._rest(scope, receive, send)
        elif scope["method"] != "POST":
            await send_error(send, _method_not_allowed(scope))
        else:
            await endpoint(scope, receive, send)


def make_rest(serving: Serving) -> FastAPI:
    """Models, health, readiness and the API's own documentation.

    Args:
        serving: what is being served.

    Returns:
        A FastAPI application.
    """
    app = FastAPI(title="seam-router", version=__version__)

    def owner(request: Request) -> str:
        return authorize(serving.generation, request.headers)

    @app.exception_handler(RequestError)
    async def refused(_: Request, error: RequestError) -> JSONResponse:
        body = error_object(error.message, type=error.type, param=error.param, code=error.code)
        return JSONResponse(body, status_code=error.status, headers=dict(error.headers))

    @app.exception_handler(StarletteHTTPException)
    async def not_here(request: Request, error: HTTPException) -> JSONResponse:
        message = f"{request.method} {request.url.path}: {error.detail}."
        body = error_object(message, type="invalid_request_error", code="not_found")
        return JSONResponse(body, status_code=error.status_code, headers=error.headers)

    @app.get("/v1/models", dependencies=[Depends(owner)])
    async def models() -> dict[str, Any]:
        """The routes, as models."""
        return {"object": "list", "data": [_model(serving, name) for name in _names(serving)]}

    @app.get("/v1/models/{name:path}", dependencies=[Depends(owner)])
    async def model(name: str) -> dict[str, Any]:
        """One route, as a model."""
        if name not in serving.generation.routes:
            raise RequestError(
                f"The model {name!r} is not a route of this router.",
                status=404,
                param="model",
                code="model_not_found",
            )
        return _model(serving, name)

    @app.get("/health")
    async def health() -> dict[str, str]:
        """The process is alive."""
        return {"status": "ok", "version": __version__}

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """New streams are taken. A record store that is away does not make a router unready."""
        store = dict(serving.engine.store.stats)
        status = "draining" if serving.draining else "ready"
        code = 503 if serving.draining else 200
        return JSONResponse({"status": status, "record": store}, status_code=code)

    return app


def _names(serving: Serving) -> list[str]:
    return list(serving.generation.routes)


def _model(serving: Serving, name: str) -> dict[str, Any]:
    created = int(serving.generation.created_unix_s)
    return {"id": name, "object": "model", "created": created, "owned_by": "router"}


def _method_not_allowed(scope: Scope) -> RequestError:
    return RequestError(
        f"{scope['path']} takes POST, not {scope['method']}.",
        status=405,
        code="method_not_allowed",
        headers=(("allow", "POST"),),
    )
