"""Runs as a service: the HTTP interface of LibreTranslate, batches across requests, limits, keys.

Does not live here: the command line (`foveate.cli.serve`), the page at ``/`` (`foveate.studio`),
and what is a sentence (`foveate.passages`). What it needs comes with
``pip install 'foveate[serve]'``.
"""
