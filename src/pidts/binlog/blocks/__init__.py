"""Blocks of many ordinary transactions, scanned in compiled code."""
