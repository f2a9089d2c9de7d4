"""The engine: batches on Spark. The only package that imports pyspark."""
