"""Anthropic's Messages as the simulated provider speaks them: requests in, events out.

wire.py      what a request asks, and how one is turned down
checks.py    what the vendor refuses, in its own words: fields and options
blocks.py    the same for messages and what is in them
schemas.py   the same for JSON schemas
models.py    what a model can, by its name
encoder.py   the answer, as a stream or whole

Written apart from `wire/`, so that a mistake there is not repeated here and thereby hidden.
"""

from router.simulate.anthropic.wire import AnthropicWire

__all__ = ["AnthropicWire"]
