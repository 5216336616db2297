"""How a record's values are wrapped on their way to a store, and unwrapped on the way back.

An `Envelope` belongs to one stream under one writer. It knows where the text ends, so that what is
appended can be bound to what stands before it. `Plain` wraps nothing; `cipher.py` has the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from router.errors import RecordCorrupt


class Envelope(Protocol):
    """One stream's wrapping."""

    @property
    def seal(self) -> str:
        """Name of the seal, as the record has it; "" for none."""
        ...

    @property
    def size(self) -> int:
        """Length of the text as it is stored, in bytes."""
        ...

    def wrap(self, part: str, data: bytes) -> bytes:
        """Wrap a field of the state.

        Args:
            part: its name.
            data: its value.
        """
        ...

    def unwrap(self, part: str, data: bytes) -> bytes:
        """The way back.

        Args:
            part: name of the field.
            data: as it is stored.

        Raises:
            RecordCorrupt: it was not wrapped so.
        """
        ...

    def append(self, data: bytes) -> bytes:
        """Wrap what is appended to the text, and move to its end. Nothing stays nothing.

        Args:
            data: of the text, the next bytes.
        """
        ...

    def restart(self) -> None:
        """The text begins anew: the next `append` is its first."""
        ...

    def read(self, stored: bytes) -> bytes:
        """Unwrap the whole text, and move to its end.

        Args:
            stored: as it is stored.

        Raises:
            RecordCorrupt: it was not wrapped so, or is not whole.
        """
        ...


class Envelopes(Protocol):
    """What makes them."""

    @property
    def seals(self) -> tuple[str, ...]:
        """Names of the seals that can be opened."""
        ...

    def new(self, stream_id: str) -> Envelope:
        """For a record that begins.

        Args:
            stream_id: whose.
        """
        ...

    def of(self, stream_id: str, fields: Mapping[bytes, bytes]) -> Envelope:
        """For a record that is there.

        Args:
            stream_id: whose.
            fields: its state.

        Raises:
            RecordCorrupt: its seal cannot be opened here.
        """
        ...


class Plain:
    """Wraps nothing."""

    __slots__ = ("size",)

    seal = ""

    def __init__(self) -> None:
        self.size = 0

    def wrap(self, part: str, data: bytes) -> bytes:
        """As it is."""
        del part
        return data

    def unwrap(self, part: str, data: bytes) -> bytes:
        """As it is."""
        del part
        return data

    def append(self, data: bytes) -> bytes:
        """As it is."""
        self.size += len(data)
        return data

    def restart(self) -> None:
        """The text begins anew."""
        self.size = 0

    def read(self, stored: bytes) -> bytes:
        """As it is."""
        self.size = len(stored)
        return stored


class PlainEnvelopes:
    """Makes envelopes that wrap nothing, and opens none that are sealed."""

    seals = ("",)

    def new(self, stream_id: str) -> Plain:
        """See `Envelopes.new`."""
        del stream_id
        return Plain()

    def of(self, stream_id: str, fields: Mapping[bytes, bytes]) -> Plain:
        """See `Envelopes.of`."""
        seal = fields.get(b"seal", b"")
        if seal:
            name = seal[:8].decode("ascii", "replace")
            raise RecordCorrupt(
                f"record {stream_id}: it is encrypted with the key {name!a}, and this router has "
                "no key"
            )
        return Plain()
