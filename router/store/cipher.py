"""Sealed records: what is stored of an answer tells nothing, and cannot be rearranged.

AES-256-GCM. Each stream has a key of its own, derived from the configured one and the stream's id
(HKDF-Expand of RFC 5869, one block: the configured key is random already). So a nonce, 96 random
bits, needs to be unique among the few thousand frames of one stream only, and nothing sealed for
one stream opens for another.

The text is a sequence of frames, one for each write:

    length    4 bytes, big-endian: of what follows
    nonce     12 bytes
    sealed    the bytes of text, encrypted, and the 16 bytes of their tag

What a frame is authenticated with besides names the stream, the offset at which the frame begins,
and the tag of the frame before it. So a frame opens only behind the very frames that it was written
behind: none can be dropped, doubled, put elsewhere, or follow what another writer wrote. What can
be cut off unnoticed is whole frames at the end, together with the lengths in the state: that leaves
what the record was a moment before.

The fields `head` and `meta` are sealed alike, bound to the stream and their name.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from router.errors import RecordCorrupt

KEY_BYTES = 32
"""Size of a key."""

NONCE_BYTES = 12
TAG_BYTES = 16
LENGTH_BYTES = 4

MAX_FRAME_BYTES = (1 << 32) - 1 - NONCE_BYTES - TAG_BYTES
"""Longest text of one frame; Redis holds no value beyond 512 MiB anyway."""

_LABEL = b"seam-router record 1"
"""Stands in everything that is derived or authenticated: the layout, in its version."""


class SealedEnvelopes:
    """Seals with the first of its keys, opens with each.

    Args:
        keys: of 32 random bytes each, at least one.

    Raises:
        ValueError: none, or of another size.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ValueError(f"records are sealed with keys of {KEY_BYTES} bytes")
        self._keys = {key_name(key): key for key in reversed(keys)}
        self._first = key_name(keys[0])

    @property
    def seals(self) -> tuple[str, ...]:
        """Names of the keys."""
        return tuple(self._keys)

    def new(self, stream_id: str) -> Sealed:
        """See `Envelopes.new`."""
        return Sealed(self._first, self._keys[self._first], stream_id)

    def of(self, stream_id: str, fields: Mapping[bytes, bytes]) -> Sealed:
        """See `Envelopes.of`. What is not sealed at all is not taken for ours either."""
        name = fields.get(b"seal", b"").decode("ascii", "replace")[: 2 * _NAME_BYTES]
        if not name:
            raise RecordCorrupt(
                f"record {stream_id}: it is not encrypted, and this router has a key"
            )
        key = self._keys.get(name)
        if key is None:
            raise RecordCorrupt(
                f"record {stream_id}: it is encrypted with the key {name!a}, which this router "
                "does not have"
            )
        return Sealed(name, key, stream_id)


_NAME_BYTES = 4
"""Bytes of a key's name: enough to tell the few keys of one installation apart."""


def key_name(key: bytes) -> str:
    """What a key is called where it may be seen: a hash that leads nowhere.

    Args:
        key: 32 random bytes.
    """
    return hashlib.sha256(_LABEL + b" key name" + key).hexdigest()[: 2 * _NAME_BYTES]


class Sealed:
    """One stream's seal.

    Args:
        seal: name of the key.
        key: the key.
        stream_id: whose record.
    """

    __slots__ = ("_aead", "_stream", "_tail", "seal", "size")

    def __init__(self, seal: str, key: bytes, stream_id: str) -> None:
        self.seal = seal
        self.size = 0
        self._stream = stream_id.encode()
        self._tail = bytes(TAG_BYTES)
        derived = hmac.digest(key, _LABEL + b" stream " + self._stream + b"\x01", "sha256")
        self._aead = AESGCM(derived)

    def wrap(self, part: str, data: bytes) -> bytes:
        """See `Envelope.wrap`."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, data, self._field(part))

    def unwrap(self, part: str, data: bytes) -> bytes:
        """See `Envelope.unwrap`."""
        try:
            return self._aead.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], self._field(part))
        except (InvalidTag, ValueError) as error:  # the latter: too short for a nonce
            raise self._corrupt(f"its {part} was not sealed for it, or was changed") from error

    def append(self, data: bytes) -> bytes:
        """See `Envelope.append`."""
        if not data:
            return b""
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._aead.encrypt(nonce, data, self._place())
        self._step(sealed)
        return (NONCE_BYTES + len(sealed)).to_bytes(LENGTH_BYTES, "big") + nonce + sealed

    def restart(self) -> None:
        """See `Envelope.restart`."""
        self.size = 0
        self._tail = bytes(TAG_BYTES)

    def read(self, stored: bytes) -> bytes:
        """See `Envelope.read`."""
        self.restart()
        texts = []
        while self.size < len(stored):
            begin = self.size + LENGTH_BYTES
            length = int.from_bytes(stored[self.size : begin], "big")
            body = begin + NONCE_BYTES
            end = begin + length
            if length < NONCE_BYTES + TAG_BYTES or end > len(stored):
                raise self._corrupt(f"its text is cut off at byte {self.size}")
            sealed = stored[body:end]
            try:
                texts.append(self._aead.decrypt(stored[begin:body], sealed, self._place()))
            except InvalidTag as error:
                raise self._corrupt(
                    f"its text was not sealed for it, or was changed, from byte {self.size} on"
                ) from error
            self._step(sealed)
        return b"".join(texts)

    def _step(self, sealed: bytes) -> None:
        self.size += LENGTH_BYTES + NONCE_BYTES + len(sealed)
        self._tail = sealed[-TAG_BYTES:]

    def _field(self, part: str) -> bytes:
        return b"%b %b of %b" % (_LABEL, part.encode(), self._stream)

    def _place(self) -> bytes:
        return b"%b text of %b at %d behind %b" % (_LABEL, self._stream, self.size, self._tail)

    def _corrupt(self, why: str) -> RecordCorrupt:
        return RecordCorrupt(f"record {self._stream.decode()}: {why}")
