"""The command `pidts`: parse, call, show. What a command does is decided in the packages below."""
