"""Between a request for a chat completion and a canonical conversation."""

from router.wire.openai.conversation_in import read_conversation
from router.wire.openai.conversation_out import write_conversation

__all__ = ["read_conversation", "write_conversation"]
