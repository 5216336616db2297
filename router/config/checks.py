"""Finding a route's own check: a callable named `module:callable`, or an entry point."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

ENTRY_POINTS = "seam_router.boundary_checks"
"""Group of the entry points by which a package offers checks."""

MAX_SAID_CHARS = 200


class CheckUnusable(Exception):
    """There is no such check.

    Args:
        message: what is wrong, a clause.
    """


def load_check(name: str) -> Callable[..., Any]:
    """Import a check. This runs its module's code.

    Args:
        name: `module:callable` (dots allowed in both), or the name of an entry point.

    Returns:
        The callable.

    Raises:
        CheckUnusable: it cannot be imported, or is no callable.
    """
    try:
        found = _imported(name) if ":" in name else _offered(name)
    except CheckUnusable:
        raise
    except Exception as error:  # noqa: BLE001 - foreign code may raise anything
        said = f"{type(error).__name__}: {error}"[:MAX_SAID_CHARS]
        raise CheckUnusable(f"cannot be imported ({said})") from None
    if not callable(found):
        raise CheckUnusable("is no callable")
    called: Callable[..., Any] = found
    return called


def _imported(name: str) -> object:
    module, _, path = name.partition(":")
    found: object = importlib.import_module(module)
    for step in path.split("."):
        found = getattr(found, step)
    return found


def _offered(name: str) -> object:
    offered = entry_points(group=ENTRY_POINTS, name=name)
    for one in offered:
        return one.load()
    raise CheckUnusable(f"is no entry point of the group `{ENTRY_POINTS}`")
