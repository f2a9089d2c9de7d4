"""Full copy: rows that are already there, read in chunks while the log goes on."""

from pidts.copy.chunk import Chunk, read_chunk

__all__ = ["Chunk", "read_chunk"]
