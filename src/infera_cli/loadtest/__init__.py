"""Load: locust users, the processes that run them, and what comes back (bench-and-cli §B).

Locust and gevent patch the process that imports them, so they live in child processes only: `child.py` and
`cluster.py` are programs, everything else here may be imported anywhere.
"""
