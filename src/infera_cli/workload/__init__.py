"""What `bench` and `simulate` share: arrivals, datasets, measures, comparison.

PURE: no clock, no global dice, no I/O; seeds and times are arguments (design.md §2).
"""
