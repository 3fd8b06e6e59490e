"""Talking to a running server: workers, requests, explain."""
