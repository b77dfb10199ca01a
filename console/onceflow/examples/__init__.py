"""Handlers that work as they are, to start from."""
