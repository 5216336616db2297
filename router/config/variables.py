"""`${VAR}` in texts, filled in from the environment. What is put in is not looked at again."""

from __future__ import annotations

import re
from collections.abc import Mapping

from router.config.problem import shown

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)(?P<close>\}?)")
_BODY = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)


class BadVariable(Exception):
    """A reference that cannot be filled in."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


def substitute(text: str, env: Mapping[str, str]) -> str:
    """Fill in the variables of one text. What is put in is not looked at again.

    Args:
        text: with `${VAR}`, `${VAR:-default}` (used when unset or empty) and `$${` for `${`.
        env: the variables.
    """
    return _REFERENCE.sub(lambda match: _resolve(match, env), text)


def _resolve(match: re.Match[str], env: Mapping[str, str]) -> str:
    """The value of one reference."""
    if match["body"] is None:
        return "${"
    body = _BODY.fullmatch(match["body"])
    if not match["close"] or body is None:
        raise BadVariable(
            "A `${…}` is not closed, or its name is no variable's name.",
            "Write `${NAME}` or `${NAME:-default}`, and `$${` for a literal `${`.",
        )
    name, default = body["name"], body["default"]
    if default is not None:
        return env.get(name) or str(default)
    if name not in env:
        raise BadVariable(
            f"The environment variable {shown(name)} is not set.",
            f"Set it where the router starts, or give a default: `${{{name}:-…}}`.",
        )
    return env[name]
