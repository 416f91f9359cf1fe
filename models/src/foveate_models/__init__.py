"""Packed translators for foveate: `files` holds one for each direction, named by its languages.

    echo "Where is the station?" | foveate translate en-fr

`foveate.cli.options` finds them here. They are data: this module runs nothing.
"""
