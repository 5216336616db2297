"""The loop that asks, streams, commits and fails over."""
