"""The data source `format("binlog")`: reads the changes of a log into a data frame, as a batch or as a stream."""
