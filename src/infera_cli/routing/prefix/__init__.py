"""Who holds which prompt prefix: the index, and each rank's share of it (design.md §4; rulings 17)."""

from infera_cli.routing.prefix.identity import first_parent
from infera_cli.routing.prefix.index import PrefixIndex
from infera_cli.routing.prefix.orphans import BLOCK_BYTES
from infera_cli.routing.prefix.slot import SMALLEST_UNIT, Slot, unit_of

__all__ = ["BLOCK_BYTES", "SMALLEST_UNIT", "PrefixIndex", "Slot", "first_parent", "unit_of"]
