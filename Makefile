# Everything starts here. On a fresh machine: `make demo` or `make test`; both set up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check format train-embedded accuracy bench docs clean

# Exact versions come from constraints.txt, so that every machine gets the same ones.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(READY)  ## explain a sentence with the embedded model
	$(BIN)/mixlens explain "The keys to the cabinet [MASK] rusty."
	$(BIN)/mixlens compare "The keys to the cabinet [MASK] rusty." --no-special
	$(BIN)/mixlens check agreement

test: $(READY)  ## the whole suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

check: $(READY)  ## format, lint, types, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

train-embedded: $(READY)  ## train the two embedded models again (CPU, under 30 minutes)
	$(BIN)/python -m recipes.train_embedded

accuracy: $(READY)  ## measure docs/accuracy.md again (needs the shared models beside the project)
	$(BIN)/python -m recipes.accuracy

bench: $(READY)  ## each method against a forward pass and the obvious code
	$(BIN)/python -m benchmarks

docs: $(READY)  ## docs/methods.md, docs/gallery.md, their figures and the notebooks, by running what they show
	$(BIN)/python -m recipes.methods_page
	$(BIN)/python -m recipes.gallery
	$(BIN)/python -m recipes.notebooks

clean:
	rm -rf $(VENV) build dist *.egg-info
