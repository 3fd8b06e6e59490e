"""`python -m infera_cli` is `infera`."""

from infera_cli.cli import main

main()
