"""A streaming router for LLM providers: one endpoint, and an answer that survives its provider.

The map of the house is `docs/architecture.md`; the floors, each importing only downward, are held
by import-linter.
"""

__version__ = "0.1.0"
