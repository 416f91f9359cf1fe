"""Search for the best output, one step at a time; it only depends on the `Steps` protocol."""
