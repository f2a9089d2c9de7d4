"""The service over HTTP: who may call, the REST operations and their description, the page."""
