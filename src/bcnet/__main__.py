"""`python -m bcnet`."""

from bcnet.cli import main

main()
