"""`python -m pidts` is `pidts`."""

from pidts.cli.app import main

main()
