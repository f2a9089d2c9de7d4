"""Converts values of each column type from the bytes of a row image to Arrow, and to text."""
