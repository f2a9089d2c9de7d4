"""The two files of a segment: the events, and the index with an entry for each transaction."""
