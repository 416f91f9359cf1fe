"""The studio: runs in a browser. A web application whose API is typed, and the page that uses it.

Does not live here: the page itself (``web/`` in the repository, built into ``static``), what is
drawn (`foveate.views`), how outputs are watched (`foveate.watching`). FastAPI and uvicorn come with
``pip install 'foveate[studio]'``.
"""
