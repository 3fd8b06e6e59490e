"""The scheduler as a whole: a real server behind a real scheduler file."""
