"""The webhook bridge: bytes in, acknowledged record out."""
