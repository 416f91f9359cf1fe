"""Documents as people have them: sentences for a model; markup and protected spans stay."""
