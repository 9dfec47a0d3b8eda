# The commands of the course. `make` alone lists them.
# A new .venv is made with the first usable Python 3.11 to 3.13; PYTHON=path names another.

.DEFAULT_GOAL := help
.PHONY: help book test lab execute sync new-lab contract matrix exchange budgets versions links format pin clean clean-venv browser pictures

PY := .venv/bin/python
VENV := .venv/.installed
LAB ?=
ONLY ?=
TIMES ?= 20
NAME ?=
NOTEBOOKS ?=
STAGES ?=
JUPYTER_FLAGS ?=
PIN_FLAGS ?=
# The tests that ask the same of every lab.
CONTRACT := tests/test_submissions.py tests/test_notebooks_metadata.py tests/test_publish.py
PAGES ?=

help:
	@echo "make book      build the HTML book and print where to open it"
	@echo "make test      run everything that CI runs (STAGES=\"lint tests\" picks some)"
	@echo "make lab       open JupyterLab on a lab (LAB=eager_crops)"
	@echo
	@echo "For authors:"
	@echo "make sync      write the lab modules' code into the notebooks"
	@echo "make execute   run the notebooks and store their outputs (NOTEBOOKS=\"path ...\" picks some)"
	@echo "make new-lab   start a lab from the template (NAME=my_lab)"
	@echo "make contract  hold one lab to all that every lab promises (LAB=my_lab)"
	@echo "make matrix    grade every recorded submission (ONLY=name: one lab's;"
	@echo "               LAB=name TIMES=20: repeat one lab's timed ones under load)"
	@echo "make browser   say which browser the tests use; bring one where there is none"
	@echo "make pictures  photograph every page of the built book, to be looked at (PAGES=\"page ...\")"
	@echo "make exchange  run the chapters' asserts with their subjects exchanged: each must notice"
	@echo "make budgets   measure what imports, grades and the book's build cost"
	@echo "make versions  run the tests on the oldest, the pinned and the newest JAX"
	@echo "make links     look up every address that the course links to; needs the network"
	@echo "make format    format the code and fix what lint can fix"
	@echo "make pin       resolve constraints.txt anew for every Python (PIN_FLAGS=--keep: change little)"
	@echo "make clean     remove what was built; clean-venv removes .venv too"

$(VENV): constraints.txt pyproject.toml tools/venv.sh
	@PYTHON="$(PYTHON)" tools/venv.sh

book: $(VENV)
	@$(PY) tools/stages.py book
	@echo
	@echo "The book is built. Open it in a browser: $(CURDIR)/_build/html/index.html"

test: $(VENV)
	@$(PY) tools/stages.py $(STAGES)

lab: LAB := $(or $(LAB),eager_crops)
lab: $(VENV)
	@test -f "labs/$(LAB).ipynb" || { \
		echo "There is no lab '$(LAB)'. The labs are:"; \
		for notebook in labs/*.ipynb; do basename "$$notebook" .ipynb; done; \
		exit 1; }
	$(PY) -m jupyterlab $(JUPYTER_FLAGS) "labs/$(LAB).ipynb"

execute: $(VENV)
	@$(PY) tools/stages.py xray
	@$(PY) tools/notebooks.py execute $(NOTEBOOKS)
	@$(PY) tools/status.py

sync: $(VENV)
	@$(PY) tools/notebooks.py sync
	@$(PY) tools/status.py

new-lab: $(VENV)
	@test -n "$(NAME)" || { echo "Name the lab: make new-lab NAME=my_lab"; exit 1; }
	@$(PY) tools/notebooks.py new-lab "$(NAME)"

contract: $(VENV)
	@test -n "$(LAB)" || { echo "Name the lab: make contract LAB=eager_crops"; exit 1; }
	@$(PY) tools/notebooks.py check --lab "$(LAB)"
	@$(PY) -m pytest -q -n 0 -k "$(LAB)" $(CONTRACT)

matrix: $(VENV)
	@$(PY) tools/matrix.py $(if $(ONLY),--only $(ONLY)) $(if $(LAB),--lab $(LAB) --times $(TIMES))
	@$(PY) tools/status.py

browser: $(VENV)
	@$(PY) tools/browser.py

pictures: book
	@$(PY) tools/pictures.py $(PAGES)

exchange: $(VENV)
	@$(PY) tools/exchange.py

budgets: $(VENV)
	@$(PY) benchmarks/budgets.py

versions: $(VENV)
	@$(PY) tools/versions.py

links: $(VENV)
	@$(PY) tools/links.py

format: $(VENV)
	@$(PY) -m ruff check --fix --exit-zero --quiet .
	@$(PY) -m ruff format .

pin: $(VENV)
	@$(PY) tools/pin.py $(PIN_FLAGS)

clean:
	rm -rf _build .pytest_cache .ruff_cache .hypothesis
	find . -name .venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

clean-venv: clean
	rm -rf .venv
