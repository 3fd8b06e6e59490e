"""Where workers are named, one kind of source a file."""
