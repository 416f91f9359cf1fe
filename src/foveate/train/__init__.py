"""Training any task: the loop, optimisers, schedules, checkpoints, and the log of a run."""
