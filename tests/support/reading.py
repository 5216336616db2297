"""What a client got, read from the raw bytes with as little cleverness as possible."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass
class Answer:
    """One response, taken apart."""

    status: int
    headers: httpx.Headers
    raw: bytes
    chunks: list[dict[str, Any]] = field(default_factory=list)
    done: int = 0
    comments: list[str] = field(default_factory=list)

    @property
    def delivered(self) -> str:
        """All text that was delivered."""
        return "".join(
            choice["delta"].get("content") or ""
            for chunk in self.chunks
            for choice in chunk.get("choices", [])
        )

    @property
    def finish_reasons(self) -> list[str]:
        """Every finish, in order."""
        return [
            choice["finish_reason"]
            for chunk in self.chunks
            for choice in chunk.get("choices", [])
            if choice.get("finish_reason")
        ]

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The `router` object, which must stand on the chunk with the finish and nowhere else."""
        carriers = [chunk for chunk in self.chunks if "router" in chunk]
        assert len(carriers) <= 1
        if not carriers:
            return None
        assert any(choice.get("finish_reason") for choice in carriers[0]["choices"])
        found: dict[str, Any] = carriers[0]["router"]
        return found

    @property
    def error(self) -> dict[str, Any] | None:
        """The in-band error, which must be the last event."""
        errors = [chunk["error"] for chunk in self.chunks if "error" in chunk]
        assert len(errors) <= 1
        if errors:
            assert "error" in self.chunks[-1]
            assert "choices" not in self.chunks[-1]
            found: dict[str, Any] = errors[0]
            return found
        return None

    @property
    def canonical(self) -> str:
        """The delivered text without the superseded ranges."""
        facts = self.metadata or (self.error or {}).get("router") or {}
        kept, at = [], 0
        for start, end in facts.get("superseded", []):
            kept.append(self.delivered[at:start])
            at = end
        return "".join((*kept, self.delivered[at:]))


def read_stream(status: int, headers: httpx.Headers, raw: bytes) -> Answer:
    """Take a stream's bytes apart; anything outside the wire contract fails the test."""
    answer = Answer(status, headers, raw)
    for line in raw.decode().split("\n"):
        if not line:
            continue
        if line.startswith(":"):
            answer.comments.append(line)
            continue
        assert line.startswith("data: "), line
        data = line.removeprefix("data: ")
        if data == "[DONE]":
            answer.done += 1
            continue
        assert not answer.done, "something follows [DONE]"
        answer.chunks.append(json.loads(data))
    return answer


async def ask(
    base_url: str,
    *,
    model: str = "chat",
    content: str = "Tell me something long.",
    headers: dict[str, str] | None = None,
    **fields: Any,  # noqa: ANN401 - of a request
) -> Answer:
    """One streamed request, read to its end."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "stream": True,
        **fields,
    }
    async with httpx.AsyncClient(timeout=30, verify=False, trust_env=False) as client:  # noqa: S501
        response = await client.post(
            f"{base_url}/chat/completions", json=body, headers=headers or {}
        )
        return read_stream(response.status_code, response.headers, response.content)


def check_contract(answer: Answer) -> None:
    """What every finished stream keeps to: one id, model, created, role, finish and `[DONE]`."""
    assert answer.status == 200
    assert answer.error is None, answer.error
    chunks = answer.chunks
    for name in ("id", "model", "created", "object"):
        assert len({chunk[name] for chunk in chunks}) == 1, name
    roles = [
        c["delta"]["role"] for chunk in chunks for c in chunk["choices"] if "role" in c["delta"]
    ]
    assert roles == ["assistant"]
    assert len(answer.finish_reasons) == 1
    assert answer.done == 1
