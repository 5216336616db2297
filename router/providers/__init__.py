"""Who the providers are: a format of wire/ plus quirks. Pure: builds and reads, never calls."""
