"""The signature of a thinking block: Anthropic's own, or the mark that there is none.

Anthropic signs what its models think, and takes a thinking block back only with its signature. What
another provider reasoned was signed by nobody, and neither was the thought of an attempt that died
before its signature came. A client that speaks Messages must get some signature all the same, and
sends it back with the history. So the router marks such a block; a block that bears the mark is
never sent to a provider.
"""

from __future__ import annotations

from typing import Final

from router.wire.checks import is_base64, refuse
from router.wire.jsontext import Json

UNSIGNED_SIGNATURE_PREFIX: Final = "seam-router.unsigned"
"""What the signature of an unsigned block begins with; the full stop is in no base64."""

_URL_SAFE: Final = str.maketrans("-_", "+/")


def unsigned_signature() -> str:
    """The signature of a block that nobody signed."""
    return UNSIGNED_SIGNATURE_PREFIX


def is_unsigned(block: Json) -> bool:
    """Is a content block a thought that nobody signed?

    Args:
        block: as a client sent it.
    """
    if not isinstance(block, dict) or block.get("type") != "thinking":
        return False
    signature = block.get("signature")
    return isinstance(signature, str) and signature.startswith(UNSIGNED_SIGNATURE_PREFIX)


def check_signature(signature: str, where: str) -> None:
    """The mark, or what may be a provider's signature: base64, the kind for URLs too.

    Whether it is genuine only its provider knows; what is no base64 is surely not.

    Args:
        signature: as a client sent it.
        where: path of the field.

    Raises:
        RequestError: it is neither.
    """
    if signature.startswith(UNSIGNED_SIGNATURE_PREFIX):
        return
    if not is_base64(signature.translate(_URL_SAFE)):
        message = (
            f"'{where}' is no signature of a thinking block: send the block back as it came, "
            "or leave it out."
        )
        refuse(message, where, "invalid_signature")
