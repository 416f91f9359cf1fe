"""Measure models: speed, memory and growth on this machine, and models side by side.

Every figure comes with the machine, the versions, the commit and the fastest matrix products
of the machine, measured in the same process before and after. Training (`foveate.train`) and
search (`foveate.decode`) are measured as users run them. Models are compared on equal terms:
the same examples, tokenizers and budget.
"""
