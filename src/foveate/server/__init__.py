"""The HTTP servers: the translation API, like LibreTranslate's, and the studio in a browser.

Both are routers on top of `foveate.server.common`. The source of the studio's page is in ``web/``
of the repository and is built into ``static``; drawings come from `foveate.views`. FastAPI and
uvicorn come with ``pip install '.[serve]'`` or ``'.[studio]'``.
"""
