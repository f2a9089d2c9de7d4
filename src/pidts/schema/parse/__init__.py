"""Parses the text of a statement; there is a lexer and one file for each clause."""
