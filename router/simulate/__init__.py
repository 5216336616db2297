"""A provider on a real socket that answers deterministically and misbehaves on demand.

what to say     answer.py   a request becomes pieces: text/, prefix.py
how to say it   dialect.py  what a wire format is: openai.py, anthropic/, gemini/; sse.py frames it
how to fail     faults.py   the mini language; misdeeds.py does it, perform.py puts it in its place
the socket      server.py   intake.py reads, transport.py writes, records.py remembers
"""

from router.simulate.answer import REFUSALS, Conduct, Script
from router.simulate.casting import Faults
from router.simulate.dialect import Dialect, parse_dialect
from router.simulate.faults import Directives, FaultSpec, Misdeed, parse_directives, parse_fault
from router.simulate.gates import Turnstile
from router.simulate.records import Ended, RequestRecord
from router.simulate.scene import Gate, Pace, RawAnswer
from router.simulate.server import SimulatedProvider
from router.simulate.text import seeded_text, tokenize

__all__ = [
    "REFUSALS",
    "Conduct",
    "Dialect",
    "Directives",
    "Ended",
    "FaultSpec",
    "Faults",
    "Gate",
    "Misdeed",
    "Pace",
    "RawAnswer",
    "RequestRecord",
    "Script",
    "SimulatedProvider",
    "Turnstile",
    "parse_dialect",
    "parse_directives",
    "parse_fault",
    "seeded_text",
    "tokenize",
]
