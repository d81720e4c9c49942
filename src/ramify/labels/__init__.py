"""Label representations, from which indexes are built."""
