"""One file per public format, both directions; formats meet only in core/events.py."""
