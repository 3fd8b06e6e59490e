"""What `kv-aware` keeps: a target per rank, its load, and what it was promised (infera-wire §4.3–4.7)."""

from infera_cli.routing.kv.aware import KvAware, KvWeights
from infera_cli.routing.kv.targets import Choice, Held, KvBook, Target

__all__ = ["Choice", "Held", "KvAware", "KvBook", "KvWeights", "Target"]
