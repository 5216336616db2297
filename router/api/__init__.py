"""The HTTP face: the app, and one file per client-facing format."""
