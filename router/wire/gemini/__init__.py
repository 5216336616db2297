"""Gemini's format: the requests that a target is sent, and the answers that it gives.

No client speaks it here, so there is no way in for requests and none out for answers.
"""

from __future__ import annotations

from router.wire.gemini.conversation import write_conversation
from router.wire.gemini.reader import GenerateContentReader

__all__ = ["GenerateContentReader", "write_conversation"]
