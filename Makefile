# The two commands of the README are `make demo` and `make test`. Each makes its own environment in .venv and needs
# nothing but Python (3.11 or newer), make and a C++20 compiler.
PYTHON ?= python3
ifeq ($(origin CXX),default)  # make's own guess is g++, which not everybody has
CXX := c++
endif
VENV := .venv
# Installed by itself before anything that asks for torch: where several builds are at hand, the exact version finds the
# small one for the processor. TORCH= takes whatever the extras bring.
TORCH ?= torch==2.13.0
SANITIZE := .venv-sanitize
TSAN := .venv-tsan
ANNIF := .venv-annif
CPP := $(wildcard cpp/*/*.h cpp/*/*.cpp cpp/*/*/*.h cpp/*/*/*.cpp fuzz/native/*)
SOURCES := pyproject.toml CMakeLists.txt $(CPP)
PIP_OPTIONS := --quiet --disable-pip-version-check

.PHONY: demo serve test test-annif test-distributed lint screenshots stub format-cpp sanitize tsan fuzz kills clean prerequisites

demo: $(VENV)/.installed
	$(VENV)/bin/python examples/demo.py

# The page on the model of the demo, at http://127.0.0.1:8000.
serve: $(VENV)/.installed-serve
	test -d demo/xr-linear || $(VENV)/bin/python examples/demo.py
	$(VENV)/bin/ramify serve demo/xr-linear

test: $(VENV)/.installed-dev lint
	$(VENV)/bin/python -m pytest

lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run --Werror $(CPP)
	test ! -x $(VENV)/bin/hadolint || $(VENV)/bin/hadolint deploy/Containerfile

# The pictures of the documentation, taken by the browser of the tests.
screenshots: $(VENV)/.installed-dev
	$(VENV)/bin/python docs/images/make_images.py

# The type stub of the compiled module; a test fails if it is not current.
stub: $(VENV)/.installed-dev
	$(VENV)/bin/python cpp/bindings/make_stub.py > src/ramify/_core.pyi
	$(VENV)/bin/ruff format src/ramify/_core.pyi

format-cpp: $(VENV)/.installed-dev
	$(VENV)/bin/clang-format -i $(CPP)

# The native tests under AddressSanitizer and UndefinedBehaviorSanitizer, in an environment of their own.
sanitize: $(SANITIZE)/.installed
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	$(SANITIZE)/bin/python -m pytest -p no:cacheprovider -m native

# Models used by several threads, and by forked processes, under ThreadSanitizer.
tsan: $(TSAN)/.installed
	LD_PRELOAD="$$($(CXX) -print-file-name=libtsan.so)" TSAN_OPTIONS="die_after_fork=0 suppressions=$(CURDIR)/tests/tsan.txt" \
	OMP_NUM_THREADS=1 $(TSAN)/bin/python -m pytest -p no:cacheprovider -m threads

# Mutants of every kind of model, of checkpoints and of the embedding cache, then the fuzzers: the native
# ones need clang, those of the readers in Python atheris. SECURITY.md says what they look for.
MUTANTS ?= 100000
SECONDS ?= 1800
fuzz: $(VENV)/.installed-dev
	RAMIFY_THREADS=1 OMP_NUM_THREADS=1 $(VENV)/bin/python fuzz/mutants.py --mutants $(MUTANTS)
	$(MAKE) -C fuzz SECONDS=$(SECONDS)
	if $(VENV)/bin/python -c 'import atheris' 2>/dev/null; then for target in records xmc npz catalogue store; do \
		$(VENV)/bin/python fuzz/readers.py $$target -max_total_time=$(SECONDS) || exit 1; done; fi

# Trainings of every model that has checkpoints, killed at random moments and resumed.
KILLS ?= 50
kills: $(VENV)/.installed-dev
	RAMIFY_THREADS=1 OMP_NUM_THREADS=1 $(VENV)/bin/python fuzz/kills.py --kills $(KILLS)

# Ray with several nodes on this machine, one of which is killed.
test-distributed: $(VENV)/.installed-dev
	$(VENV)/bin/python -m pytest -m cluster tests/distributed

# The real Annif, which needs other versions of our dependencies: its command line with our backend and our server.
test-annif: $(ANNIF)/.installed $(VENV)/.installed-serve
	RAMIFY_COMMAND="$(CURDIR)/$(VENV)/bin/ramify" $(ANNIF)/bin/python -m pytest -p no:cacheprovider tests/annif_backend

clean:
	rm -rf $(VENV) $(SANITIZE) $(TSAN) $(ANNIF) build demo .mypy_cache .ruff_cache .pytest_cache .hypothesis

prerequisites:
	@command -v $(PYTHON) >/dev/null || { echo "Ramify needs Python 3.11 or newer: '$(PYTHON)' was not found. Install it, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Ramify needs Python 3.11 or newer: '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "'$(PYTHON)' cannot make virtual environments: install its venv package (python3-venv on Debian and Ubuntu)" >&2; exit 1; }
	@command -v $(firstword $(CXX)) >/dev/null || { echo "Ramify needs a C++20 compiler: '$(firstword $(CXX))' was not found. Install g++ 11 or clang 14 or newer, or name one: make CXX=g++" >&2; exit 1; }

# Build tools live in the environment, not in a throw-away one, so that a second build compiles only what changed.
define make_environment
	test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install $(PIP_OPTIONS) "scikit-build-core>=0.11" "nanobind>=2.7"
	command -v cmake >/dev/null || $(1)/bin/python -m pip install $(PIP_OPTIONS) cmake
	command -v ninja >/dev/null || $(1)/bin/python -m pip install $(PIP_OPTIONS) ninja
endef

$(VENV)/.installed: $(SOURCES) | prerequisites
	$(call make_environment,$(VENV))
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" CXX="$(CXX)" $(VENV)/bin/python -m pip install $(PIP_OPTIONS) --no-build-isolation --editable .
	touch $@

$(VENV)/.installed-serve: $(VENV)/.installed
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" CXX="$(CXX)" $(VENV)/bin/python -m pip install $(PIP_OPTIONS) --no-build-isolation --editable '.[serve]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	test -z "$(TORCH)" || $(VENV)/bin/python -m pip install $(PIP_OPTIONS) $(TORCH)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" CXX="$(CXX)" $(VENV)/bin/python -m pip install $(PIP_OPTIONS) --no-build-isolation --editable '.[dev]'
	touch $@

# $(1): the environment; $(2): the option of cmake; $(3): where it builds
define make_sanitized
	$(call make_environment,$(1))
	test -z "$(TORCH)" || $(1)/bin/python -m pip install $(PIP_OPTIONS) $(TORCH)
	PATH="$(CURDIR)/$(1)/bin:$$PATH" CXX="$(CXX)" $(1)/bin/python -m pip install $(PIP_OPTIONS) --no-build-isolation \
		--config-settings=cmake.define.$(2)=ON --config-settings=build-dir=$(3) --editable '.[dev]'
	touch $(1)/.installed
endef

$(SANITIZE)/.installed: $(SOURCES) | prerequisites
	$(call make_sanitized,$(SANITIZE),RAMIFY_SANITIZE,build/sanitize)

$(TSAN)/.installed: $(SOURCES) | prerequisites
	$(call make_sanitized,$(TSAN),RAMIFY_TSAN,build/tsan)

$(ANNIF)/.installed: $(SOURCES) | prerequisites
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 14))' || { echo "Annif needs Python 3.13 or older: '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another one: make test-annif PYTHON=python3.12" >&2; exit 1; }
	$(call make_environment,$(ANNIF))
	PATH="$(CURDIR)/$(ANNIF)/bin:$$PATH" CXX="$(CXX)" $(ANNIF)/bin/python -m pip install $(PIP_OPTIONS) --no-build-isolation --editable '.[annif]' pytest
	touch $@
