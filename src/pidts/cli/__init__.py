"""The command `pidts`: it parses arguments, calls the packages below, and prints their results."""
