"""Makes `python -m pidts` the same as `pidts`."""

from pidts.cli.app import main

main()
