"""`pidts relay`: what a relay keeps, and how it gives room."""
