"""Side-by-side measurements: infera, nginx, the compiled LLM routers; README.md says how to repeat them."""
