"""Search for the best output, position by position; it only depends on the `Steps` protocol."""
