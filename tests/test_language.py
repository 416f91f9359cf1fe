"""Language modelling end to end at a small size: blocks, measures, evaluation, generation."""
