"""What the router decides, and nothing it does: no await, no clock, no logging on this floor."""
