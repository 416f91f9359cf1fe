"""Documents: their sentences are translated; markup and protected spans stay unchanged."""
