"""The studio in a browser: runs, views, training, evaluation, lectures, and pages to publish.

Its HTTP parts are those of `foveate.serve`; drawings come from `foveate.look.views`. The source of
the page is in ``web/`` of the repository and is built into ``static``. FastAPI and uvicorn come
with ``pip install '.[studio]'``.
"""
