"""Bytes and JSON to values and back; pure."""
