"""Measuring models on this machine: training, decoding, memory, and growth with the length.

Every figure comes with the machine, the versions, the commit and what the machine's matrix
products could do at most, measured in the same process before and after. Training
(`foveate.train`) and searching (`foveate.decode`) are measured as users run them.
"""
