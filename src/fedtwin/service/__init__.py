"""The twin as a service: an HTTP API and a page over runs that are read by ``open_run``; nothing of a folder is run."""
