"""Changes made by gh-ost and pt-online-schema-change: the names of their tables, and the change that a swap makes."""
