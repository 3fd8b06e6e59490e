"""A simulated engine as a process: vLLM's interface on top of the pure model in `simulator` (engines §8).

Started as `python -m infera_cli.simengine`; tests, `infera demo` and `--sim` use it where a real engine
needs a GPU.
"""
