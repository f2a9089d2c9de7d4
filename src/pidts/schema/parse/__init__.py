"""Parses the text of a statement: a lexer and one file for each clause."""
