"""The task file: read strictly into immutable values, each mistake with its line."""
