"""Measuring models: speed, memory and growth on this machine; models side by side.

Every figure comes with the machine, the versions, the commit and what the machine's matrix
products could do at most, measured in the same process before and after. Training
(`foveate.train`) and searching (`foveate.decode`) are measured as users run them.
Models are compared on equal terms: the same examples, tokenizers and budget.
"""
