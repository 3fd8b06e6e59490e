"""`session`: stay where the conversation was, else the fewest open requests (replica-router §1.10).

The pin and its slack are the pipeline's; the row in the catalogue asks for them. What is left is this choice.
"""

from infera_cli.routing.policies.least_loaded import choose

__all__ = ["choose"]
