"""Deterministic text for the simulated provider: a seeded generator and a tokenizer."""

from router.simulate.text.generator import KINDS, seeded_text
from router.simulate.text.tokens import tokenize

__all__ = ["KINDS", "seeded_text", "tokenize"]
