# Every target sets up what it needs by itself: Python 3.11+ (and Java 17+ where Spark runs).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-dev
ARCHIVE := $(VENV)/spark-classes.jsa
# pytest rewrites every test file, which takes most of the time to collect them: it keeps the result as bytecode
export PYTHONDONTWRITEBYTECODE :=
# what a broker does with files, sockets, signals and processes
PORTABLE := tests/unit/base/system tests/unit/broker/storage tests/unit/broker/logs tests/unit/broker/server tests/unit/client tests/unit/registry/test_workers.py \
	$(addprefix tests/integration/test_,start.py produce.py fetch.py crash.py restart.py compaction.py testing_plugin.py)

.PHONY: help setup lock demo test test-all coverage test-portable check check-mypy check-others check-types docs site package compat corruption hostile properties kills mutants bench simulate soak night clean

help:
	@echo "make demo    the main job end to end: logs -> topics -> Spark -> a summary"
	@echo "make test    the tests of every part, in minutes (TESTS=path: all tests of one place)"
	@echo "make test-all  every test: clusters, Spark, the pages' commands, whole matrices (TESTS=path)"
	@echo "make test-portable  tests of the broker without what other systems than Linux lack"
	@echo "make coverage  the part of each package that the unit and property tests run: docs/development/coverage.md"
	@echo "make lock    the hashes of all packages, once constraints.txt has changed (needs uv)"
	@echo "make check   lint, types, layers, generated docs, prose"
	@echo "make check-types  the types in the console's pages, by tsc (needs npm, and its registry the first time)"
	@echo "make docs    write the generated reference pages again"
	@echo "make package  the wheel for a package index, in dist/ (REPOSITORY=https://...)"
	@echo "make site    the documentation as a site with search, in .site/"
	@echo "make compat  Apache Kafka's own clients and tools against Barnabas (needs Maven), the console in Chromium"
	@echo "make hostile the worst requests that brokers and registries take: none may hold up the others"
	@echo "make properties  what must hold of any input, tried with many new ones (make test-all has few, the same each time)"
	@echo "make kills   what writes exactly once (Spark jobs, pipelines, examples, ship, registries), killed at many moments (SEEDS=25)"
	@echo "make mutants small bugs planted in a package: which do the unit tests beside it let live? (PACKAGE=storage)"
	@echo "make bench   speed beside Apache Kafka and Tansu, and of Spark beside its own connector"
	@echo "make corruption  every file a broker keeps, damaged in every way, after a stop and after a kill"
	@echo "make simulate  whole brokers in virtual time, with clients and faults, each from a seed (SEEDS=50)"
	@echo "make soak    ten minutes of clients and faults, and a checker of what the clients saw"
	@echo "make night   simulations that go on where the last night was stopped, at the lowest priority"

setup: $(STAMP)

# Every file that is installed has one of the hashes in requirements/. pip checks none of an editable install, nor of
# what packages are built with: so those come first, and Barnabas itself without a look at the package index.
INSTALL = $(BIN)/python -m pip install -q --disable-pip-version-check
HASHED = $(INSTALL) --require-hashes --no-deps --no-build-isolation
OURS = $(INSTALL) --no-index --no-build-isolation -c constraints.txt

$(STAMP): pyproject.toml constraints.txt $(wildcard requirements/*.lock)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Barnabas and what it is tested with (once) ..."
	@$(HASHED) -r requirements/build.lock
	@$(BIN)/python -m tools.install requirements/dev.lock $(HASHED) --no-compile  # pip would compile 8,500 files on one core
	@$(OURS) -e '.[spark,dev]'
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # some files are of other Pythons
	@$(BIN)/python -m compileall -q src  # an editable install has no bytecode: start-up would compile each time
	@touch $@

# Many tests wait for brokers, and most slow ones for Spark: two cores are busy with more workers. They take the tests
# in the order of tests/conftest.py.
PYTEST = $(BIN)/python -m pytest -q --dist loadgroup --no-loadscope-reorder

# tests/slow.py says what is left out
test: setup
	$(PYTEST) -n $(or $(WORKERS),4) $(or $(TESTS),-m 'not slow and not compat and not hostile')

test-all: setup $(ARCHIVE)
	$(PYTEST) -n $(or $(WORKERS),6) --durations=50 $(TESTS)

# Done once here, and not by each worker and each JVM: the tests' bytecode, and an archive of Spark's classes.
$(ARCHIVE): $(STAMP)
	@echo "preparing the tests and Spark (once) ..."
	@$(BIN)/python -m pytest -q --collect-only >/dev/null & $(BIN)/python -m tests.spark_archive; wait

coverage: setup
	$(BIN)/python -m pytest -q -n $(or $(WORKERS),2) --cov --cov-report= $(or $(TESTS),tests/unit tests/property)
	$(BIN)/python tools/coverage_page.py

# without uvloop, fcntl, resource, sendfile, pwritev and more, which other systems lack
test-portable: setup
	PYTHONPATH=$(CURDIR)/tests/portable $(BIN)/python -m pytest -q -n auto --maxprocesses 4 $(or $(TESTS),$(PORTABLE))

# mypy takes as long as all others together: `make -j 2 check` uses two cores
check: check-mypy check-others

check-mypy: setup
	$(BIN)/mypy

check-others: setup
	$(BIN)/ruff format --check src tests bench demo simulation soak examples tools
	$(BIN)/ruff check src tests bench demo simulation soak examples tools
	$(BIN)/lint-imports
	$(BIN)/python -m tools.docs --check
	$(BIN)/python tools/seams.py --check
	$(BIN)/python -m tools.prose

# not part of check: what everyone runs needs no node
check-types:
	npm exec --yes --prefer-offline --package=typescript@5.9.3 -- tsc -p tools

# after constraints.txt or the dependencies of pyproject.toml have changed; needs uv
lock:
	$(PYTHON) tools/lock.py

docs: setup
	$(BIN)/python -m tools.docs
	$(BIN)/python tools/seams.py
	$(BIN)/python -m tools.prose --write

# Links to nowhere are errors. To look at it: .venv/bin/python -m http.server -d .site
site: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -q

# the repository does not know its own address: REPOSITORY says it
package: setup
	$(BIN)/python tools/package.py $(REPOSITORY)

demo: setup
	$(BIN)/python -m demo $(if $(BROKERS),--brokers $(BROKERS)) $(FILES)

compat: setup
	@$(HASHED) -r requirements/browser.lock
	@$(OURS) -e '.[browser]'
	$(BIN)/python -m pytest -q -m compat tests/compat

hostile: setup
	$(BIN)/python -m pytest -q -m hostile tests

properties: setup
	BARNABAS_THOROUGH=1 $(BIN)/python -m pytest -q -n auto --maxprocesses 4 -m hypothesis tests

kills: setup
	BARNABAS_THOROUGH=1 BARNABAS_KILL_SEEDS=$(or $(SEEDS),25) $(BIN)/python -m pytest -q tests/spark tests/examples tests/integration/cluster -k "killed"

mutants: setup
	$(BIN)/python tests/mutation/mutants.py $(or $(PACKAGE),storage) --count $(or $(COUNT),60) --seed $(or $(SEED),1)

bench: setup
	$(BIN)/python -m bench $(BENCH)

corruption: setup
	BARNABAS_THOROUGH=1 $(BIN)/python -m pytest -q -n auto --maxprocesses 4 tests/integration/test_corruption.py

# more on it: docs/development/simulation.md
simulate: setup
	nice -n 10 $(BIN)/python -m soak.simulated --seeds $(or $(SEEDS),50) $(SIMULATE)
	nice -n 10 $(BIN)/python -m soak.simulated --brokers 3 --seeds $(or $(SEEDS),50) $(SIMULATE)

soak: setup
	$(BIN)/python -m soak $(SOAK)

# goes on where the last night was stopped: docs/development/long-runs.md
night: setup
	$(BIN)/python -m soak.night $(NIGHT)

clean:
	rm -rf $(VENV) .site .demo .bench .compat .soak build dist .mypy_cache .ruff_cache .pytest_cache
