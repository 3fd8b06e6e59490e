"""A stand-in for the pypto-serving package: its command line, and nothing behind it."""
