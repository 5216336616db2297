"""What a Gemini model can, by the generation in its name.

A name that is not of this pattern (`sim-model`) is of no generation, and takes what any one takes.
Sources: https://ai.google.dev/gemini-api/docs/thought-signatures and, for what takes no prefix,
https://github.com/LibreChat-AI/agents/pull/323 and https://github.com/pipecat-ai/pipecat/pull/5821
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

Generation: TypeAlias = tuple[int, int]

_NAME: Final = re.compile(r"gemini-(\d+)(?:\.(\d+))?")

FIRST_WITHOUT_PREFIX: Final[Generation] = (3, 6)
FIRST_WITHOUT_PENALTY: Final[Generation] = (2, 5)
"""From then on a presence or frequency penalty is refused."""
FIRST_WITH_SIGNATURES: Final[Generation] = (3, 0)
"""From then on calls have ids and must bear signatures, thinking has levels, and structured output
goes with tools."""
_LITE_WITHOUT_PREFIX: Final = "gemini-3.5-flash-lite"


def generation(model: str) -> Generation | None:
    """The generation that a name tells: (2, 5) of `gemini-2.5-flash`.

    Args:
        model: as asked for.

    Returns:
        Major and minor number, or None for a name of another pattern.
    """
    found = _NAME.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else None


def since(model: str, first: Generation) -> bool:
    """Whether a model is known to be of that generation or a later one."""
    known = generation(model)
    return known is not None and known >= first


def before(model: str, first: Generation) -> bool:
    """Whether a model is known to be of an earlier generation."""
    known = generation(model)
    return known is not None and known < first


def takes_prefix(model: str) -> bool:
    """Whether a model goes on with a trailing model turn."""
    return not (since(model, FIRST_WITHOUT_PREFIX) or _LITE_WITHOUT_PREFIX in model)
