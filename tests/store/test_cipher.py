"""The seal itself: what opens, what does not, and that nothing shows through."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import RecordCorrupt
from router.store.cipher import KEY_BYTES, SealedEnvelopes, key_name
from router.store.envelope import Envelope, PlainEnvelopes

OLD, NEW = bytes(range(KEY_BYTES)), bytes(range(KEY_BYTES, 2 * KEY_BYTES))
BOTH = SealedEnvelopes([NEW, OLD])

FRAMES = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6)


def again(stream_id: str = "one", envelopes: SealedEnvelopes = BOTH) -> Envelope:
    """What somebody reads with."""
    return envelopes.of(stream_id, {b"seal": envelopes.new(stream_id).seal.encode()})


def sealed(frames: list[bytes], stream_id: str = "one") -> list[bytes]:
    writer = BOTH.new(stream_id)
    return [writer.append(frame) for frame in frames]


@given(frames=st.lists(st.binary(max_size=40), max_size=6))
def test_what_was_sealed_opens(frames: list[bytes]) -> None:
    writer = BOTH.new("one")
    stored = b"".join(writer.append(frame) for frame in frames)
    reader = again()
    assert reader.read(stored) == b"".join(frames)
    assert reader.size == writer.size == len(stored)
    # Whoever has read it may go on, and it is still one text.
    stored += reader.append(b"more")
    assert again().read(stored) == b"".join(frames) + b"more"


@given(frames=FRAMES, data=st.data())
@settings(max_examples=300)
def test_no_bit_can_be_changed(frames: list[bytes], data: st.DataObject) -> None:
    stored = bytearray(b"".join(sealed(frames)))
    bit = data.draw(st.integers(0, 8 * len(stored) - 1))
    stored[bit // 8] ^= 1 << bit % 8
    with pytest.raises(RecordCorrupt, match="record one"):
        again().read(bytes(stored))


@given(frames=FRAMES, data=st.data())
def test_it_is_cut_only_between_frames(frames: list[bytes], data: st.DataObject) -> None:
    parts = sealed(frames)
    stored = b"".join(parts)
    cut = data.draw(st.integers(0, len(stored)))
    ends = list(itertools.accumulate((len(part) for part in parts), initial=0))
    if cut in ends:
        assert again().read(stored[:cut]) == b"".join(frames[: ends.index(cut)])
    else:
        with pytest.raises(RecordCorrupt, match="cut off"):
            again().read(stored[:cut])


@given(frames=st.lists(st.binary(min_size=1, max_size=8), min_size=2, max_size=5), data=st.data())
def test_frames_keep_their_order(frames: list[bytes], data: st.DataObject) -> None:
    parts = sealed(frames)
    order = data.draw(st.lists(st.sampled_from(range(len(parts))), min_size=1, max_size=6))
    if order != list(range(len(order))):  # left out, doubled, or put elsewhere
        with pytest.raises(RecordCorrupt, match="changed"):
            again().read(b"".join(parts[n] for n in order))


def test_two_histories_of_one_stream_do_not_mix() -> None:
    """The same lengths, the same offsets, the same key: two writers that went their own ways."""
    one, other = BOTH.new("one"), BOTH.new("one")
    shared = one.append(b"Same. ")
    other.read(shared)
    mine, theirs = one.append(b"I say. "), other.append(b"They. ")
    last = [one.append(b"End."), other.append(b"End.")]
    assert again().read(shared + mine + last[0]) == b"Same. I say. End."
    assert again().read(shared + theirs + last[1]) == b"Same. They. End."
    for mixed in (mine + last[1], theirs + last[0]):
        with pytest.raises(RecordCorrupt, match="changed"):
            again().read(shared + mixed)


def test_another_stream_s_frames_and_fields_do_not_open() -> None:
    with pytest.raises(RecordCorrupt, match="record two: its text was not sealed for it"):
        again("two").read(b"".join(sealed([b"text"], "one")))
    head = BOTH.new("one").wrap("head", b"{}")
    assert again().unwrap("head", head) == b"{}"
    with pytest.raises(RecordCorrupt, match="record two: its head"):
        again("two").unwrap("head", head)
    with pytest.raises(RecordCorrupt, match="its meta was not sealed for it"):
        again().unwrap("meta", head)


@pytest.mark.parametrize("data", [b"", b"x", b"x" * 12, b"x" * 27, b"x" * 100, b'{"plain": 1}'])
def test_what_was_never_sealed_does_not_open(data: bytes) -> None:
    with pytest.raises(RecordCorrupt):
        again().unwrap("meta", data)
    if data:
        with pytest.raises(RecordCorrupt):
            again().read(data)


def test_a_text_begins_anew() -> None:
    writer = BOTH.new("one")
    writer.append(b"lost")
    writer.restart()
    assert writer.size == 0
    assert again().read(writer.append(b"whole")) == b"whole"


def test_the_same_text_is_never_sealed_alike() -> None:
    assert len({sealed([b"text"])[0] for _ in range(50)}) == 50


def test_rotation() -> None:
    before, after = SealedEnvelopes([OLD]), SealedEnvelopes([NEW])
    old = before.new("one")
    stored = old.append(b"text")
    fields = {b"seal": old.seal.encode()}
    assert (BOTH.new("one").seal, BOTH.seals) == (key_name(NEW), (key_name(OLD), key_name(NEW)))
    reader = BOTH.of("one", fields)
    assert reader.read(stored) == b"text"
    # Who goes on uses the key that the record has: whoever could read it still can.
    assert before.of("one", fields).read(stored + reader.append(b" and more")) == b"text and more"
    with pytest.raises(RecordCorrupt, match=f"the key '{key_name(OLD)}', which this router does"):
        after.of("one", fields)
    with pytest.raises(RecordCorrupt, match="is not encrypted"):
        after.of("one", {})
    with pytest.raises(RecordCorrupt, match=f"'{key_name(OLD)}', and this router has no key"):
        PlainEnvelopes().of("one", fields)


def test_a_wrong_key_under_the_right_name_does_not_open() -> None:
    stored = b"".join(sealed([b"text"]))
    wrong = SealedEnvelopes([OLD])
    wrong._keys = {key_name(NEW): OLD}
    with pytest.raises(RecordCorrupt, match="not sealed for it"):
        wrong.of("one", {b"seal": key_name(NEW).encode()}).read(stored)


def test_a_key_s_name_is_no_secret() -> None:
    assert len({key_name(bytes([n]) * KEY_BYTES) for n in range(100)}) == 100
    assert all(len(key_name(key)) == 8 for key in (OLD, NEW))


@pytest.mark.parametrize("keys", [[], [b"short"], [NEW, NEW + b"x"]])
def test_keys_of_another_size_are_refused(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        SealedEnvelopes(keys)
