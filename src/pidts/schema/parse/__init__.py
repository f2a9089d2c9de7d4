"""Parses the text of a statement, with a lexer and one file for each kind of clause."""
