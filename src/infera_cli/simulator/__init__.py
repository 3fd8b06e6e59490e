"""PURE: an LLM engine as numbers. Time is an argument, nothing is random (design.md §2, §7).

`cache` keeps KV blocks, `engine` batches and steps, `text` makes prompts, tokens and answers.
"""
