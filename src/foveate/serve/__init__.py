"""The translation API over HTTP, like LibreTranslate's and DeepL's, and what any service needs.

Its routes are on top of `foveate.serve.common`, as are those of `foveate.studio`. FastAPI and
uvicorn come with ``pip install '.[serve]'``.
"""
