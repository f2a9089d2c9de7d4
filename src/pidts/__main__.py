"""Makes `python -m pidts` the same as `pidts`."""

from pidts.cli.program import main

main()
