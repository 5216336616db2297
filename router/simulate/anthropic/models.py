"""What a Claude model can, by the generation in its name.

A name that is not of this pattern (`sim-model`) is of no generation, and takes what any one takes.
Sources: https://platform.claude.com/docs/en/about-claude/models/migration-guide and
https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

Generation: TypeAlias = tuple[int, int]

_NAME: Final = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2})(?!\d))?")

LAST_WITH_PREFILL: Final[Generation] = (4, 5)
LAST_WITH_SAMPLING: Final[Generation] = (4, 6)
"""Afterwards `temperature`, `top_p` and `top_k` are deprecated."""
FIRST_WITH_EITHER: Final[Generation] = (4, 1)
"""From then on either `temperature` or `top_p`, not both."""
LAST_WITH_BUDGET: Final[Generation] = (4, 6)
"""Afterwards `thinking` of type `enabled` is refused, and what is thought is not shown unasked."""
FIRST_WITH_ADAPTIVE: Final[Generation] = (4, 6)
FIRST_WITH_SYSTEM_TURNS: Final[Generation] = (4, 8)


def generation(model: str) -> Generation | None:
    """The generation that a name tells: (4, 5) of `claude-sonnet-4-5-20250929`.

    Args:
        model: as asked for.

    Returns:
        Major and minor number, or None for a name of another pattern.
    """
    found = _NAME.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else None


def after(model: str, last: Generation) -> bool:
    """Whether a model is of a later generation than `last`."""
    return (generation(model) or last) > last


def before(model: str, first: Generation) -> bool:
    """Whether a model is of an earlier generation than `first`."""
    return (generation(model) or first) < first
