"""The full copy's part of a batch: splitting a table into pieces, loading, settling and finishing them."""
