"""The lowest floor: errors, configuration, sparse helpers, and the one door to the compiled core."""
