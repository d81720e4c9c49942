"""Base layer: configuration, errors, rankings, sparse matrices, threads and progress bars."""
