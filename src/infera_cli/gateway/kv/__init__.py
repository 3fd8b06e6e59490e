"""The gateway's part of `kv-aware` and of mode `direct`: reading prompts, holding promises (infera-wire §4)."""
