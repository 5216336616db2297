"""Signatures of the simulated vendors: opaque to whoever carries them, and known again here.

Real ones are a secret of their vendor, and good at every address of it; so are these: each
simulated provider knows what another one has signed.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

_MAKER: Final = b"router.simulate\x00"


def seal(text: str) -> str:
    """Sign a text; the same text always gets the same signature.

    Returns:
        Base64.
    """
    digest = hashlib.sha256(_MAKER + text.encode("utf-8", "surrogatepass")).digest()
    return base64.b64encode(b"simulated" + digest).decode()


def is_sealed(signature: object, text: str) -> bool:
    """Whether this is what `seal` gave for the text."""
    return signature == seal(text)
