"""KV events of every rank, from the wire into the prefix index (engines §1.8; C25, C26, C29)."""
