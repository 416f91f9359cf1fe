"""Search for the best output, one step at a time; knows only the `Steps` protocol."""
