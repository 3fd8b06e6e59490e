"""What came out, for people and programs: console tables, JSON, CSV, HTML with plots (bench-and-cli §A16)."""
