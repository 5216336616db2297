"""Routes and targets as the engine uses them: configuration turned into objects by `build.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from router.core.boundary import Boundary
from router.core.continuation import Style
from router.engine.check import BoundaryCheck
from router.engine.gaps import Gaps
from router.engine.options import OnInterrupt
from router.engine.upstream import Upstream
from router.providers.base import Provider


class Stall(StrEnum):
    """How a silence in mid-answer is judged."""

    FIXED = "fixed"
    """By the target's idle limit alone."""
    ADAPTIVE = "adaptive"
    """By what is usual for the target, with the idle limit as the upper bound."""
    HEDGE = "hedge"
    """As `adaptive`, but the target is still heard while the next one is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Provider + model + key.

    Args:
        name: unique, such as "openai/gpt-5.2"; what logs and metadata call it.
        model: as the provider knows it.
        provider: builds requests and reads answers.
        upstream: the provider's connections.
        connect_s: connection limit, in seconds.
        first_output_s: limit for the first output.
        idle_s: limit between two outputs.
        context_window: tokens, or None if not configured.
        gaps: how long its silences usually are.
    """

    name: str
    model: str
    provider: Provider
    upstream: Upstream
    connect_s: float = 2.0
    first_output_s: float = 15.0
    idle_s: float = 5.0
    context_window: int | None = None
    gaps: Gaps = field(default_factory=Gaps, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A public model name.

    Args:
        name: the public model name.
        targets: in priority order, at least one.
        make_boundary: a fresh boundary for one stream.
        total_s: limit for the whole request, in seconds.
        max_attempts: upstream calls per request.
        same_target_retries: how often a target is asked again in a row, before output.
        max_wait_s: longest wait before a target is asked again.
        stall: how a silence in mid-answer is judged.
        on_interrupt: what happens when a provider dies in mid-answer, unless the client chooses.
        atomic_tools: tool calls are held back until they are whole, unless the client chooses.
        think_tags: `<think>` at the beginning of the content is reasoning.
        json: every answer is a JSON document, whether the request says so or not.
        check: asked about every unit before it is committed, or None.
        drop_unsupported: a target that speaks another format, and has no word for something that a
            request asks, is asked without it; where not, it is passed over.
        passed_over: of a route that was narrowed to one request, the names of the targets that are
            left out, and what they cannot be told.
    """

    name: str
    targets: tuple[Target, ...]
    make_boundary: Callable[[], Boundary]
    total_s: float = 600.0
    max_attempts: int = 4
    same_target_retries: int = 1
    max_wait_s: float = 2.0
    stall: Stall = Stall.FIXED
    on_interrupt: OnInterrupt = OnInterrupt.RESUME
    atomic_tools: bool = False
    think_tags: bool = False
    json: bool = False
    check: BoundaryCheck | None = None
    drop_unsupported: bool = False
    passed_over: Mapping[str, str] = field(default_factory=dict)

    @property
    def continuable(self) -> bool:
        """Some target can go on from text that is there already."""
        return any(one.provider.continuation.style is not Style.NONE for one in self.targets)
