"""Machines and processes."""
