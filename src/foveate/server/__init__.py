"""The HTTP servers: the translation API, as LibreTranslate's, and the studio, runs in a browser.

Both are routers over what `foveate.server.common` holds. The studio's page itself is in ``web/`` of
the repository and is built into ``static``; drawings come from `foveate.views`. FastAPI and
uvicorn come with ``pip install '.[serve]'`` or ``'.[studio]'``.
"""
