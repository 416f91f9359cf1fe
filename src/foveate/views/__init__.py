"""Every view by its name: what it shows, which runs it fits, what it asks, and how it is drawn.

The command line, the report and the studio read this one registry (`foveate.views.registry`).
"""
