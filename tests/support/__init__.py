"""What tests share: a router on a real socket, and a reader of what it puts on the wire."""
