"""Schema changes of the source, run on the target beside the batches of rows."""
