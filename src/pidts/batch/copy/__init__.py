"""The work of a full copy inside a batch: split a table into pieces, load them, settle and finish them."""
