"""Measures a run: how far it lags, what its stages wait for, and how far its standbys have replicated."""
