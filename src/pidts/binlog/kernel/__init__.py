"""Converts row images to Arrow in machine code, table by table; `binlog.rows` does the same in plain Python.

A list of numbers describes how a column is read (`program`). It begins with a code for the kind of column. One loop
reads all images (`images`) by these codes, into memory that Arrow uses without a copy (`buffers`, `arrays`). Every
length is compared with the remaining bytes before it is used. If the bytes are wrong, plain code reads them again and
raises the error.
"""
