"""One live run: what has happened, what may happen next, what is admitted, what is on disk. No network."""
