# Everything starts here. On a fresh machine: `make demo` or `make test`; both set up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
READY := $(VENV)/.ready
AXE := 4.14.0
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
export NO_MKDOCS_2_WARNING := 1

.PHONY: demo test mutants browser check format train-embedded accuracy bench pages docs package clean

# Exact versions come from constraints.txt, so that every machine gets the same ones. The core is what `pip install mixlens` brings;
# tests and tools need more.
$(CORE): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
		{ echo "$(PYTHON) is not Python 3.11, 3.12 or 3.13. Name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV), about a minute ..."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e .
	touch $(CORE)

$(READY): $(CORE)
	$(INSTALL) -e '.[dev]'
	touch $(READY)

demo: $(CORE)  ## ask the embedded models why; needs the core alone
	$(BIN)/mixlens check agreement
	$(BIN)/mixlens explain "The keys to the cabinet [MASK] rusty."
	$(BIN)/mixlens why "The plot was dull, but the acting was wonderful."
	@echo
	@echo "For the mixlens command in this shell:  . $(BIN)/activate"

test: $(READY)  ## the whole suite
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

mutants: $(READY)  ## how many of a fixed sample of faults the tests see (an hour; half of it for which tests run which line)
	test -f build/covering.json.gz || $(BIN)/python -m recipes.mutants.covering
	OMP_NUM_THREADS=1 $(BIN)/python -m recipes.mutants

browser: $(READY)  ## what the browser tests need (playwright, a Chromium, axe-core), then those tests
	$(INSTALL) -e '.[dev,browser]'
	command -v chromium || command -v chromium-browser || command -v google-chrome || \
		{ test "$$(id -u)" = 0 && command -v apt-get && apt-get update -qq && apt-get install -y -qq chromium; } || \
		echo "no Chromium, and it cannot be installed from here: the browser tests will be skipped"
	test -f .browser/node_modules/axe-core/axe.min.js || npm install --silent --no-save --prefix .browser axe-core@$(AXE) || \
		echo "no axe-core (needs npm): the accessibility tests will be skipped"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/show/test_browser.py tests/show/test_browser_run.py -rs

# The tests of numbers, on cases that differ: other families have the same code.
TESTED := $(addprefix tests/,methods/test_golden.py methods/test_golden_maps.py model/test_families.py methods/test_distances.py methods/test_methods.py \
	methods/test_hta.py methods/test_lrp.py methods/test_deeplift.py test_aggregate.py methods/test_without.py \
	fast/test_together.py methods/test_identifiability.py methods/test_released_attgrads.py model/test_quantized.py layer/test_unfoolable.py)
# Texts, pages and figures that are kept whole: their last digits are the processor's.
KEPT := $(addprefix tests/,show/test_told.py show/test_artists.py show/test_figures_drawn.py house/test_freeze.py)
NEWER := X86_V4 AVX512_ICL AVX512_SPR
SOME := bert or gpt2 or llama or gemma3
# Families that are one more entry of the table: the same code as others.
MORE := phi or cohere or stablelm or starcoder2 or smollm3 or olmo or glm or ernie or nemotron or arcee or ministral or gptj or gpt_bigcode or biogpt or data2vec or prelayernorm
NUMBERS := $(BIN)/python -m pytest -q -n 2 $(TESTED) -k

.PHONY: test-portable
test-portable: $(READY)  ## the numbers again as other machines compute them: plain processors, threads, no compiler, no home
	OMP_NUM_THREADS=1 ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 OPENBLAS_CORETYPE=Nehalem \
		NPY_DISABLE_CPU_FEATURES="X86_V3 $(NEWER)" $(NUMBERS) "($(SOME) or not (test_methods or test_hta)) and not ($(MORE))" $(KEPT)
	OMP_NUM_THREADS=4 OMP_WAIT_POLICY=PASSIVE MIXLENS_TEST_THREADS=4 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 \
		MKL_ENABLE_INSTRUCTIONS=AVX2 OPENBLAS_CORETYPE=Haswell NPY_DISABLE_CPU_FEATURES="$(NEWER)" $(NUMBERS) "$(SOME)"
	env -u CC -u XDG_CACHE_HOME OMP_NUM_THREADS=1 PATH="$(abspath $(BIN))" HOME=/dev/null/nobody LC_ALL=C \
		MIXLENS_SHARED=/dev/null/none $(NUMBERS) "$(SOME)"
	OMP_NUM_THREADS=1 MIXLENS_SLOW=1 $(BIN)/python -m pytest -q tests/house/test_cluster_docs.py

check: $(READY)  ## format, lint, types, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

train-embedded: $(READY)  ## train the two embedded models again (CPU, under 30 minutes)
	$(BIN)/python -m recipes.train.embedded

accuracy: $(READY)  ## measure docs/promises/accuracy.md again (needs the shared models beside the project)
	$(BIN)/python -m recipes.pages.accuracy

bench: $(READY)  ## each method against a forward pass and the obvious code
	$(BIN)/python -m benchmarks

pages: $(READY)  ## docs/use/methods.md, docs/use/gallery.md, their figures and the notebooks, by running what they show
	$(BIN)/python -m recipes.pages.methods
	$(BIN)/python -m recipes.pages.papers
	$(BIN)/python -m recipes.pages.gallery
	$(BIN)/python -m recipes.pages.notebooks

docs: $(READY)  ## the site, strictly, in build/site
	$(BIN)/python -m mkdocs build --strict --quiet
	@echo "Open build/site/index.html"

package: $(READY)  ## wheel and source archive in dist/, checked, and installed in clean environments (minutes)
	$(INSTALL) -e '.[dev,package]'
	rm -rf build/lib build/bdist.* dist
	$(BIN)/python -W error::UserWarning -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*
	MIXLENS_SLOW=1 $(BIN)/python -m pytest -q -rs tests/house/test_package_installed.py

clean:
	rm -rf $(VENV) .browser build dist *.egg-info
