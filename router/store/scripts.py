"""The Lua that runs inside Redis, and the meaning of what it answers.

A record is two keys with one hash tag, so that a Cluster keeps them on one node:

    router:{<stream_id>}:state   hash: v seal head epoch writer chars bytes boundaries stale meta
                                       outcome
    router:{<stream_id>}:text    string: the committed text, UTF-8, or its sealed frames

The epoch counts takeovers; the writer is a number that each owner makes up. Where Redis itself
fails over to a replica that lagged, a takeover may be lost and its epoch given away again: the
writer tells the two apart, so that no two of them ever append to one text.

Where a deleted record may still be written to, a tombstone stays: a state of `v`, `epoch` and
`gone`, which fences out whoever comes. It lives as long as an open record, which is longer than any
writer of the stream.

`WRITE` does everything a stream's owner ever does, so that whatever has piled up for a stream
(opening, commits, end) is one command. Redis 6 and newer; no functions, no script flags.
"""

from __future__ import annotations

import hashlib

from router.store.backlog import Write

FOREIGN_TYPE = "WRONGTYPE"
"""Redis's error code for a value of another type under our key."""

WRITE = """
local state, text = KEYS[1], KEYS[2]
local epoch, writer, head, seal = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local at_chars, at_bytes, delta, anew = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local chars, bytes, boundaries, meta = ARGV[9], ARGV[10], ARGV[11], ARGV[12]
local outcome, life_ms, remove, mends = ARGV[13], ARGV[14], ARGV[15], ARGV[16]
local FENCED, MISSING, FOREIGN, MISMATCH = -1, -2, -3, -10

local held = redis.call('HMGET', state, 'v', 'epoch', 'chars', 'bytes', 'boundaries', 'gone',
                        'writer')
if held[1] then
  if held[1] ~= '1' or not tonumber(held[2]) then return FOREIGN end
  if held[6] or tonumber(held[2]) > tonumber(epoch) then return FENCED end
  if held[2] == epoch and held[7] ~= writer then return FENCED end
elseif redis.call('EXISTS', state) == 1 then
  return FOREIGN
end

if remove ~= '' then
  redis.call('DEL', state, text)
  if remove == 'tombstone' then
    redis.call('HSET', state, 'v', '1', 'epoch', epoch, 'gone', '1')
    redis.call('PEXPIRE', state, life_ms)
  end
  return 0
end

-- An older epoch than ours: the takeover was lost (a failover to a replica that lagged), and the
-- old owner may have written since. Half a record: one key was evicted. Both begin anew.
if not (held[1] and held[2] == epoch and redis.call('STRLEN', text) == tonumber(held[4])) then
  if head == '' then return MISSING end
  redis.call('DEL', state, text)
  redis.call('HSET', state, 'v', '1', 'head', head, 'epoch', epoch, 'writer', writer,
             'chars', '0', 'bytes', '0', 'boundaries', '0', 'stale', '0')
  if seal ~= '' then redis.call('HSET', state, 'seal', seal) end
  held = {'1', epoch, '0', '0', '0'}
end

if at_chars == '-1' or not ((held[3] == at_chars and (anew ~= '' or held[4] == at_bytes))
    or (held[3] == chars and held[4] == bytes and held[5] == boundaries)) then
  if tonumber(chars) > tonumber(held[3]) then redis.call('HSET', state, 'stale', '1') end
  if at_chars ~= '-1' then return MISMATCH - tonumber(held[3]) end
  chars = held[3]
elseif held[3] == at_chars then
  if delta ~= '' then
    if anew ~= '' then redis.call('DEL', text) end
    redis.call('APPEND', text, delta)
    redis.call('HSET', state, 'chars', chars, 'bytes', bytes, 'boundaries', boundaries)
  end
  if mends ~= '' then redis.call('HSET', state, 'stale', '0') end
end
if meta ~= '' then redis.call('HSET', state, 'meta', meta) end
if outcome ~= '' then redis.call('HSET', state, 'outcome', outcome) end
redis.call('PEXPIRE', state, life_ms)
redis.call('PEXPIRE', text, life_ms)
return tonumber(chars)
"""

LOAD = """
return {redis.call('HGETALL', KEYS[1]), redis.call('GET', KEYS[2])}
"""

TAKEOVER = """
local state, text = KEYS[1], KEYS[2]
local expected, writer, seals, life_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local found = {redis.call('HGETALL', state), redis.call('GET', text), 0}
local held = redis.call('HMGET', state, 'v', 'epoch', 'bytes', 'gone', 'writer', 'seal')
local sound = held[1] == '1' and not held[4] and redis.call('STRLEN', text) == tonumber(held[3])
  and string.find(seals, ' ' .. (held[6] or '') .. ' ', 1, true)
local next_epoch = string.format('%d', tonumber(expected) + 1)
if sound and held[2] == expected then
  redis.call('HSET', state, 'epoch', next_epoch, 'writer', writer)
  redis.call('HDEL', state, 'outcome')
  redis.call('PEXPIRE', state, life_ms)
  redis.call('PEXPIRE', text, life_ms)
  found[3] = 1
elseif sound and held[2] == next_epoch and held[5] == writer then
  found[3] = 1
end
return found
"""
"""Repeated by the same writer, it changes nothing and succeeds again. Whoever cannot read the
record (`seals` are the names of the seals that it can) fences nobody out."""


class Script:
    """A script and its name on the server.

    Args:
        source: Lua.
    """

    __slots__ = ("sha", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


def keys(stream_id: str) -> tuple[str, str]:
    """The record's two keys: state and text."""
    return f"router:{{{stream_id}}}:state", f"router:{{{stream_id}}}:text"


def write_args(write: Write, ttl_ms: int) -> tuple[str | bytes | int, ...]:
    """`WRITE`'s arguments for one write.

    Args:
        write: what is to be done.
        ttl_ms: life of a record that is not closed, in milliseconds.
    """
    life_ms = write.keep_ms if write.outcome and write.keep_ms else ttl_ms
    at_bytes = 0 if write.anew else write.at_bytes
    return (
        write.epoch,
        write.writer,
        write.head,
        write.seal,
        write.at_chars,
        at_bytes,
        write.delta,
        "1" if write.anew else "",
        write.chars,
        at_bytes + len(write.delta),
        write.boundaries,
        write.meta,
        write.outcome,
        life_ms,
        _removal(write),
        "1" if write.mends else "",
    )


def _removal(write: Write) -> str:
    """How the record goes: not at all, leaving a tombstone where somebody may still write, or so
    that nothing is left. A stream that was taken over has an old writer, which may be asleep: with
    nothing there to fence it out it would put its text back."""
    if not write.outcome or write.keep_ms:
        return ""
    return "tombstone" if write.repeated or write.epoch > 1 else "now"
