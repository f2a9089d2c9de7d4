"""Prepares changes before they are written: completes images, compares versions, drops updates of filtered rows."""
