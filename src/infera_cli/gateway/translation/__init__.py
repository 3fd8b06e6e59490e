"""Requests that reach an engine in another form than they came: other names of models, other APIs (infera-wire §7)."""
