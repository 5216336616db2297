"""A coding agent that speaks Messages, as such agents do: a long prompt with marks for the cache,
many tools, betas, thinking, and the whole history again at every turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import anthropic
from anthropic.types.beta import BetaMetadataParam

from router.wire.anthropic.signature import is_unsigned
from support.work import TOOLS, Workshop

Message: TypeAlias = dict[str, Any]

MARK: Final = {"cache_control": {"type": "ephemeral"}}
SYSTEM: Final[Sequence[Mapping[str, Any]]] = [
    {"type": "text", "text": "You are a coding agent."},
    {"type": "text", "text": "Be careful with other people's files. " * 200, **MARK},
]
BETAS: Final = ("interleaved-thinking-2025-05-14", "fine-grained-tool-streaming-2025-05-14")
THINKING: Final = {"type": "enabled", "budget_tokens": 4_096}
ADAPTIVE: Final[Mapping[str, Any]] = {
    "thinking": {"type": "adaptive", "display": "omitted"},
    "more": {
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
    },
    "reminder": True,
}
"""Of an `Agent` that asks as the newest models are asked; Claude Code 2.1 was seen to ask so."""
REMINDER: Final = {"type": "text", "text": "# Environment\nYou are in a shell.", **MARK}
USER: Final[BetaMetadataParam] = {"user_id": "user_7"}


class Broken(Exception):
    """An answer broke off.

    Args:
        error: as the SDK raised it.
    """

    def __init__(self, error: anthropic.APIError) -> None:
        super().__init__(str(error))
        body: Any = error.body
        self.fields: dict[str, Any] = body["error"]
        """The error object."""


@dataclass
class Agent:
    """One session.

    Args:
        sdk: of a router.
        workshop: where its tools run.
        headers: of its requests.
        eager: it runs a tool as soon as the call is whole, while the answer still goes on; else
            when the answer is there.
        thinking: what it asks for.
        more: further fields of its requests.
        reminder: there are instructions among its messages.
        history: all messages.
    """

    sdk: anthropic.AsyncAnthropic
    workshop: Workshop
    headers: Mapping[str, str] = field(default_factory=dict)
    eager: bool = False
    thinking: Mapping[str, Any] = field(default_factory=lambda: THINKING)
    more: Mapping[str, Any] = field(default_factory=dict)
    reminder: bool = False
    history: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        """What the user wants."""
        wish = {"type": "text", "text": "The parser's test fails. Please mend it.", **MARK}
        self.history.append({"role": "user", "content": [wish]})
        if self.reminder:
            self.history.append({"role": "system", "content": [REMINDER]})

    def _asked(self) -> dict[str, Any]:
        return {
            "model": "chat",
            "system": SYSTEM,
            "tools": TOOLS,
            "messages": self.history,
            "thinking": self.thinking,
            "betas": list(BETAS),
            "extra_headers": dict(self.headers),
            **self.more,
        }

    async def count(self) -> int:
        """How many tokens the next request has."""
        counted = await self.sdk.beta.messages.count_tokens(**self._asked())
        return counted.input_tokens

    async def turn(self) -> bool:
        """Ask once, and do what is asked for.

        Returns:
            Whether the work is at its end.

        Raises:
            Broken: the answer broke off. If a tool of it ran, that is in the history.
        """
        whole: list[Any] = []
        results: list[Message] = []
        try:
            async with self.sdk.beta.messages.stream(
                max_tokens=16_000, metadata=USER, **self._asked()
            ) as stream:
                async for event in stream:
                    if event.type == "content_block_stop":
                        whole.append(event.content_block)
                        if self.eager:
                            results += self._results(event.content_block)
                message = await stream.get_final_message()
        except anthropic.APIError as error:
            if results:
                self._remember(whole, results)
            raise Broken(error) from error
        if not self.eager:
            results += (one for block in message.content for one in self._results(block))
        self._remember(message.content, results)
        assert message.stop_reason == ("tool_use" if results else "end_turn")
        return not results

    def _results(self, block: Any) -> list[Message]:  # noqa: ANN401 - of the SDK
        if block.type != "tool_use":
            return []
        ran = self.workshop.run(block.name, block.input)
        return [{"type": "tool_result", "tool_use_id": block.id, **ran}]

    def _remember(self, blocks: Sequence[Any], results: Sequence[Message]) -> None:
        said = [block.model_dump(exclude_unset=True, mode="json") for block in blocks]
        self.history.append({"role": "assistant", "content": said})
        if results:
            self.history.append({"role": "user", "content": [*results]})

    def thinks_on(self, history: Sequence[Message]) -> bool:
        """Whether Claude lets itself be asked to think: in the old way only where it did before the
        calls whose results it is handed.

        Args:
            history: the messages of the request.
        """
        if self.thinking["type"] == "adaptive" or len(history) == 1:
            return True
        block: Message = for_claude(history)[-2]["content"][0]
        return bool(block["type"] == "thinking")

    @property
    def answer(self) -> list[Message]:
        """The blocks of the last answer."""
        found = next(one for one in reversed(self.history) if one["role"] == "assistant")
        blocks: list[Message] = found["content"]
        return blocks


def for_claude(history: Sequence[Message]) -> list[Message]:
    """A history without what other models put there and Claude may not be shown: thoughts that
    nobody signed, and texts of white space alone."""

    def refused(block: Message) -> bool:
        return is_unsigned(block) or (block["type"] == "text" and not block["text"].strip())

    return [
        {**message, "content": [block for block in message["content"] if not refused(block)]}
        for message in history
    ]
