"""Checks whether zones may begin, or a zone may join others, while programs write."""
