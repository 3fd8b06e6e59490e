"""The control plane, one family of routes a file."""
