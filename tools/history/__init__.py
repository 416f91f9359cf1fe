"""The pictures of docs/history, a file for each kind of source: what is drawn, and from what.

``DRAWN`` of each file names its pictures; each is drawn by a function that is given the folder of
the small models, whether or not it needs one.
"""
