"""Tensors in, tensors out: attention, recurrence and their parts. No text, no training."""
