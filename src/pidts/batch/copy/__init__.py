"""The full copy's part of a batch: cuts requests into pieces, loads pieces, and finishes tables."""
