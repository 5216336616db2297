"""Gemini's generateContent as the simulated provider speaks it: requests in, chunks out.

wire.py      what a request asks, and how one is turned down
fields.py    the fields there are; any other is refused, as protocol buffers in JSON do it
checks.py    what the vendor refuses beyond that, in its own words
models.py    what a model can, by its name
encoder.py   the answer, as a stream or whole; array.py frames a stream that is no event stream

Written apart from `wire/`, so that a mistake there is not repeated here and thereby hidden.
"""

from router.simulate.gemini.wire import GeminiWire

__all__ = ["GeminiWire"]
