"""Measures a run: how far it lags, what its stages wait for, and where its standby servers are."""
