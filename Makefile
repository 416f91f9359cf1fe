# Two commands do all the set-up: `make quickstart` and `make test`. A second call repeats nothing.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/.stamps
TESTS  ?= tests
# What `make bench` measures: small, base, rnnsearch, a preset or CONFIG.toml.
SHAPE  ?= small
# Choices of `make bench-peers`: PEERS="--group train-small --seconds 60"; --list says what there is.
PEERS  ?=
# Test processes, each with one thread: one more than cores, for tests that wait; at most 8.
JOBS   ?= $(shell $(PYTHON) -c 'import os; print(min(8, 1 + (os.cpu_count() or 1)))')

export PIP_DISABLE_PIP_VERSION_CHECK = 1

# Choices of `make speedrun` and `make scores`: RUNS="--only grammar --config my.toml".
RUNS   ?=

.PHONY: help quickstart test proofs lint form format web web-alone setup page site wheel wheels wheel-browser bench bench-peers bench-quality claims speedrun scores configs kill faults fuzz sanitize audit hosts scaling ray corpus sizes architecture differences models lectures packaged gallery lock clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

quickstart: $(STAMPS)/studio page  ## set up, train a small translator, translate, look (minutes)
	$(BIN)/foveate quickstart

test: $(STAMPS)/dev  ## set up and run every test
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(TESTS)

proofs: $(STAMPS)/dev  ## at scale what smaller tests prove too (minutes)
	$(BIN)/python -m pytest -q -m "scale or hypothesis" --hypothesis-profile thorough $(TESTS)

lint: form types-linux types-darwin types-win32  ## ruff, and mypy for Linux, macOS and Windows

form: $(STAMPS)/dev
	$(BIN)/ruff check src tests benchmarks tools web hatch_build.py
	$(BIN)/ruff format --check src tests benchmarks tools web hatch_build.py

# typeshed knows which names a system lacks; a cache for each keeps a second call quick
types-%: $(STAMPS)/dev
	$(BIN)/mypy --platform $* --cache-dir .mypy_cache/$*

format: $(STAMPS)/dev  ## let ruff write the code's form
	$(BIN)/ruff check --fix src tests benchmarks tools web hatch_build.py
	$(BIN)/ruff format src tests benchmarks tools web hatch_build.py

web: $(STAMPS)/dev  ## check, test and build what a browser runs (Node 20.19 or newer)
	cd web && npm ci --no-audit --no-fund
	cd web && PYTHON=$(abspath $(BIN)/python) npm run types
	cd web && npm run check && npm test && npm run build && npm run sizes

# Of `make web` what needs no Python, and the environment of `make test`: .ci/run makes both at once.
web-alone:
	cd web && npm ci --no-audit --no-fund
	cd web && npm run check && npm test && npm run build && npm run sizes
setup: $(STAMPS)/dev

# What `make quickstart` needs of it: the page of the studio, if it is missing and Node is installed.
PAGE := src/foveate/studio/static/index.html
page:
	@test -f $(PAGE) || if ! command -v npm >/dev/null; then \
	    echo "The studio's page is not built, since npm is missing: install Node 20.19 or newer, then run: make page" >&2; \
	else \
	    echo "building the page of the studio (log: build/page.log)" >&2; mkdir -p build; \
	    (cd web && npm ci --no-audit --no-fund && npm run build) >build/page.log 2>&1 || \
	        echo "The studio's page is not built, since npm failed (see build/page.log); to try again: make page" >&2; \
	fi

# The pages and references come from the program; Sphinx, which only parses its sources, has an
# environment of its own. The site is a folder that a browser opens from a disk too.
SITE := build/site-venv/bin/python
site: $(STAMPS)/dev page  ## the docs as a site in build/site, its links checked (minutes)
	$(BIN)/python -m pip install -q "$$($(BIN)/python -c 'import hatch_build; print(hatch_build.ZIG)')"
	$(BIN)/python tools/website/site_sources.py build/site-source
	test -x $(SITE) || $(PYTHON) -m venv build/site-venv
	$(SITE) -m pip install -q -r tools/website/requirements.lock
	rm -rf build/site
	FOVEATE_ROOT="$(CURDIR)" FOVEATE_VERSION="$$($(BIN)/foveate --version)" \
	    $(SITE) -m sphinx -q -W --keep-going -b html build/site-source build/site
	$(SITE) tools/website/site_links.py build/site

wheel: $(STAMPS)/dev  ## build wheel and sdist; prove that the wheel works in an empty environment
	rm -rf dist build/wheel
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/pip install -q -c requirements.lock dist/*.whl
	cd build && wheel/bin/foveate --version
	cd build && wheel/bin/foveate kinds >/dev/null && wheel/bin/foveate data list >/dev/null
	cd build && wheel/bin/python -c "import foveate; print(foveate.load.__name__, foveate.train.__name__)"
	build/wheel/bin/pip check
	@echo "the wheel works in an empty environment: $$(ls dist/*.whl)"

wheels: $(STAMPS)/dev  ## sdist and a wheel for each platform, with the engine compiled by zig; their tests (minutes)
	$(BIN)/python -m pip install -q "$$($(BIN)/python -c 'import hatch_build; print(hatch_build.ZIG)')"
	set -e; for platform in $$($(BIN)/python -c 'import hatch_build; print(*hatch_build.PLATFORMS)'); do \
	    FOVEATE_WHEEL=$$platform $(BIN)/python -m build --no-isolation --wheel --outdir dist .; done
	$(BIN)/python -m build --no-isolation --sdist --outdir dist .
	$(BIN)/python -m pytest -q tests/test_engine_wheels.py tests/test_engine_elsewhere.py

wheel-browser: wheel  ## the browser's tests against what the wheel has installed, without the sources
	build/wheel/bin/pip install -q -c requirements-dev.lock $$(ls dist/*.whl)[studio,widget] \
	    pytest hypothesis beartype httpx playwright
	build/wheel/bin/python -m pytest -q -o pythonpath=tests tests/e2e

bench: $(STAMPS)/foveate  ## speed of training and decoding on this machine
	$(BIN)/foveate bench train $(SHAPE)
	$(BIN)/foveate bench decode $(SHAPE)
	$(BIN)/foveate bench decode $(SHAPE) --precision int8

bench-peers: $(STAMPS)/foveate  ## foveate beside its peers, each in an environment of its own (hours)
	$(BIN)/python benchmarks/peers/compare.py $(PEERS)
	$(BIN)/python benchmarks/peers/table.py

bench-quality: $(STAMPS)/foveate  ## minutes to BLEU 50, foveate's and JoeyNMT's (two hours)
	$(BIN)/python benchmarks/peers/quality.py

claims: $(STAMPS)/foveate  ## measure what the lectures claim: docs/reference/claims.md (half a minute)
	$(BIN)/python benchmarks/claims.py

speedrun: $(STAMPS)/foveate  ## minutes to a fixed score: the records (half an hour, an idle machine)
	$(BIN)/python benchmarks/speedrun.py $(RUNS)

scores: $(STAMPS)/foveate  ## what shipped configs reach, and in how many minutes (RUNS="--only sst2-lstm")
	$(BIN)/python benchmarks/scores.py $(RUNS)

configs: $(STAMPS)/foveate  ## two steps of every shipped config on the real data (half an hour)
	$(BIN)/python benchmarks/configs.py

kill: $(STAMPS)/foveate  ## kill a run 20 times at random moments; the weights must not notice
	$(BIN)/python benchmarks/durability kill

faults: $(STAMPS)/dev  ## SIGKILL, full and read-only disks, two at once, clock jumps (root, Linux; minutes)
	$(BIN)/python benchmarks/durability faults

SECONDS ?= 60
fuzz: $(STAMPS)/dev  ## every reader under a fuzzer, SECONDS (60) each; with atheris where it installs
	$(BIN)/python -m pip install -q 'atheris>=3,<4' || echo "no atheris here: random mutations"
	$(BIN)/python benchmarks/durability fuzz --seconds $(SECONDS)

# The runtimes of the sanitizers must be loaded before Python; leaks are looked for by the fuzzer.
SANITIZER := gcc -g -fno-omit-frame-pointer -fsanitize=address,undefined,float-cast-overflow \
             -fno-sanitize-recover=all
SANITIZED := tests/test_engine_compiled.py tests/test_engine_programs.py tests/test_engine_search.py
sanitize: $(STAMPS)/dev  ## tests of the engine, and its fuzzer, under the sanitizers of gcc (minutes)
	CC="$(SANITIZER)" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
	    LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	    $(BIN)/python -m pytest -q $(SANITIZED)
	$(BIN)/python benchmarks/durability fuzz --only engine --seconds $(SECONDS) \
	    --out build/sanitize.json

audit: $(BIN)/python  ## SBOM of the locked packages in build/sbom.json; known weaknesses (needs network)
	test -x build/audit/bin/pip-audit || { $(PYTHON) -m venv build/audit && \
	    build/audit/bin/pip install -q 'pip-audit>=2.10,<3' 'cyclonedx-bom>=7.5,<8'; }
	build/audit/bin/python tools/audit.py requirements.lock --sbom build/sbom.json

hosts: $(STAMPS)/foveate  ## two hosts that train together lose their link (root, network namespaces)
	$(BIN)/python benchmarks/durability hosts

scaling: $(STAMPS)/foveate  ## the tables of docs/reference/scaling.md from the numbers stated
	$(BIN)/python tools/scaling.py

ray: $(STAMPS)/dev  ## tests of folders through Ray
	$(BIN)/python -m pip install -q -c requirements-dev.lock --editable '.[ray]'
	$(BIN)/python -m pytest -q -m ray tests/test_corpus.py

corpus: $(STAMPS)/foveate  ## write the embedded corpora anew: of the grammar in tools/, and of Tatoeba (a minute)
	$(BIN)/python tools/embedded_corpus.py
	$(BIN)/python tools/everyday.py

sizes: $(BIN)/python  ## lines of each package, of tests, benchmarks and docs
	$(BIN)/python tools/sizes.py

architecture: $(STAMPS)/foveate  ## write docs/development/architecture.md and the picture of the house anew
	$(BIN)/python tools/walks.py
	$(BIN)/python tools/house.py

differences: $(STAMPS)/foveate  ## write docs/reference/differences.md anew: code and papers
	$(BIN)/python tools/differences.py

models: $(STAMPS)/dev  ## train, pack and score the translators of foveate-models; its wheel (hours; goes on)
	$(BIN)/python tools/models.py all
	$(BIN)/python -m build --no-isolation --wheel --outdir dist models

lectures: $(STAMPS)/studio  ## write docs/lectures anew, from src/foveate/studio/lectures
	$(BIN)/python tools/lectures.py

gallery: $(STAMPS)/studio  ## pages in which small models answer, in build/gallery (trains two: half an hour)
	$(BIN)/python tools/gallery.py

packaged: $(STAMPS)/studio  ## train the small runs that ship with foveate (a quarter of an hour)
	$(BIN)/python tools/packaged_runs.py

lock:  ## write both lock files anew from pyproject.toml (for maintainers)
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install -q "$$(grep '^torch==' requirements.lock)" .
	{ echo "# Exact versions of all that foveate needs to run; \`make lock\` writes this."; \
	  $(FREEZE); } > build/lock/runtime && mv build/lock/runtime requirements.lock
	build/lock/bin/pip install -q -c requirements.lock ".[dev]"
	{ echo "# requirements.lock and what developing needs; \`make lock\` writes this."; \
	  $(FREEZE); } > build/lock/dev && mv build/lock/dev requirements-dev.lock
	rm -rf build/site-venv && $(PYTHON) -m venv build/site-venv
	$(SITE) -m pip install -q $(RENDERS)
	{ echo "# Exact versions of what renders the site; \`make lock\` writes this."; \
	  $(SITE) -m pip freeze; } > build/lock/site && mv build/lock/site tools/website/requirements.lock

RENDERS := "sphinx>=9,<10" "pydata-sphinx-theme>=0.24,<1" "myst-parser>=5.2,<6" "sphinx-autoapi>=3.9,<4"

# exact versions only: no tags of local builds, nothing that only one kind of device needs
FREEZE = build/lock/bin/python -m pip freeze --exclude foveate | \
         sed -E -e 's/\+[a-z0-9.]+$$//' -e '/^(nvidia|triton|cuda)/d'

clean:  ## remove the environment, builds and caches (runs and data stay)
	rm -rf $(VENV) build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- set-up: one environment; `make test` adds the development tools to it

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "foveate needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." \
	         "Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Python compiles a module when it is first imported; of all that is installed few ever are. These
# are compiled here, once, also where PYTHONDONTWRITEBYTECODE keeps every later start from it.
COMPILE := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -c
$(STAMPS)/runtime: requirements.lock | $(BIN)/python
	$(BIN)/python -m pip install -q --no-compile -r requirements.lock
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/foveate: pyproject.toml $(STAMPS)/runtime
	$(BIN)/python -m pip install -q --no-compile --no-deps --editable .
	$(COMPILE) "import foveate.kinds; foveate.kinds.load_kinds()"
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/studio: requirements-dev.lock $(STAMPS)/foveate
	$(BIN)/python -m pip install -q --no-compile -c requirements-dev.lock --editable '.[studio]'
	$(COMPILE) "import foveate.studio.api"
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/dev: requirements-dev.lock $(STAMPS)/foveate
	$(BIN)/python -m pip install -q --no-compile -r requirements-dev.lock
	@command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || \
	    $(BIN)/python -m pip install -q ziglang==0.17.1  # a C compiler
	@mkdir -p $(STAMPS) && touch $@
