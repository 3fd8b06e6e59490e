"""Who serves a request, and why: pure, time and dice are arguments (design.md §4)."""
