"""Does a batch's work on the full copy: divides requests into pieces (chunks), loads them, and finishes tables."""
