"""The service over HTTP: access, the REST operations and their description, the page."""
