"""`pidts cutover`: the command and its text."""
