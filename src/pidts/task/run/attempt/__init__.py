"""One attempt of a part: its request, its context and its progress."""
