"""infera: one address in front of LLM engines, and the tools around it."""

__version__ = "0.1.0"
