"""Converts row images to Arrow in machine code, table by table; `binlog.rows` does the same in plain Python.

A list of numbers (`program`) describes how a column is read. Its first number is the code for the kind of column. One
loop (`images`) reads all images by these codes, into memory that Arrow uses without a copy (`buffers`, `arrays`). Every
length is compared with the remaining bytes before it is used. If the bytes are wrong, plain code reads them again and
raises the error.
"""
