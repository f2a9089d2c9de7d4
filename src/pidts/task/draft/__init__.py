"""A first task file, written from what the two servers say."""
