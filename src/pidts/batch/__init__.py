"""Carries out a batch, on Spark or without it: decodes, applies and copies."""
