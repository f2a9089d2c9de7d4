"""Does a batch's work on the full copy: divides requests into pieces, loads the pieces, and finishes tables."""
