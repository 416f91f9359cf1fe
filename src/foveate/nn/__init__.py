"""Tensors in, tensors out: attention, recurrence, what they are made of. No text, no training."""
