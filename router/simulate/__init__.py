"""A provider on a real socket that answers deterministically and misbehaves on demand."""
