"""Prompt → token ids → block hashes, as the engines do it (engines §6; infera-wire §4.5; design.md §4)."""
