# `foveate serve` in a container: the wheel of this platform, which holds the engine compiled; no
# PyTorch, no compiler, no root, nothing written. After `make wheels`:
#
#     docker build -t foveate .          # or the smaller one: --build-arg BASE=alpine --build-arg LIBC=musllinux
#     docker run --read-only -p 127.0.0.1:5000:5000 -v ./models:/models:ro foveate /models/en-fr.safetensors --as en:fr --no-auth
#
# compose.yml has the same with keys. `foveate pack RUN models/en-fr.safetensors` writes the file.
ARG PYTHON=3.13
ARG BASE=slim

FROM python:${PYTHON}-${BASE} AS installed
ARG LIBC=manylinux
COPY dist/ /dist/
# what is left out is never imported: bytecode, tests of packages, pip, the hub of tokenizers, symbols
RUN if command -v apk; then apk add --no-cache binutils; \
    else apt-get update && apt-get install -y --no-install-recommends binutils; fi && \
    python -m venv --without-pip /opt/foveate && \
    python -m pip --python /opt/foveate/bin/python install --no-cache-dir --no-compile \
        "$(ls /dist/foveate-*"$LIBC"*"$(uname -m)".whl)[serve]" && \
    cd /opt/foveate/lib/python*/site-packages && rm -rf huggingface_hub hf_xet numpy/f2py && \
    find . -type d -name tests -prune -exec rm -rf {} + && \
    find . -name "*.so*" -not -path "./*.libs/*" -exec strip --strip-unneeded {} +

FROM python:${PYTHON}-${BASE}
COPY --from=installed /opt/foveate /opt/foveate
ENV PATH=/opt/foveate/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /models
EXPOSE 5000
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s CMD ["python", "-c", \
    "from urllib.request import urlopen; urlopen('http://127.0.0.1:5000/health', timeout=4)"]
ENTRYPOINT ["foveate", "serve", "--host", "0.0.0.0"]
CMD ["--help"]
