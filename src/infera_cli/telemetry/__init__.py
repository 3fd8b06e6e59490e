"""Watching, never steering."""
