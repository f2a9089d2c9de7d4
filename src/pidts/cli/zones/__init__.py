"""Commands about a file with several zones."""
