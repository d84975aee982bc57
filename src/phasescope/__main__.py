"""`python -m phasescope`: the command line."""

from .cli import main

main()
