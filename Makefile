PYTHON ?= python3
# Exact versions: constraints.txt, constraints-colab.txt, or /dev/null for the newest.
CONSTRAINTS ?= constraints.txt
# Test processes at a time; each holds a TensorFlow of about 1 GB.
WORKERS ?= 2
EXTRAS := dev,serving,litert,kerascv,jax,onnx,openvino,formats,dicom,coco
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest

export TF_CPP_MIN_LOG_LEVEL ?= 2
# Each module is compiled once, not by each process that imports it.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all test-all-tensorflow test-all-jax test-torch package lint docs pictures bench notebooks clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: .venv/.installed ## create .venv with the package (editable) and all that its tests need

# The stamp makes `install` a no-op until one of the two files changes. It names what .venv was made
# with: a package that another Python or another set left there would be tested unseen.
MADE_WITH := $(PYTHON) $(CONSTRAINTS)
ifneq ($(shell cat .venv/.installed 2>/dev/null),$(MADE_WITH))
.PHONY: .venv/.installed
OUTDATED := .venv
endif

.venv/.installed: pyproject.toml $(CONSTRAINTS)
	@command -v $(PYTHON) >/dev/null || { \
	    echo "$(PYTHON) not found. Name a Python 3.11 to 3.13: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
	    echo "keras_vit needs Python 3.11 to 3.13, and $(PYTHON) is $$($(PYTHON) -V 2>&1)." \
	         "Name another: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(if $(OUTDATED),rm -rf $(OUTDATED))
	$(PYTHON) -m venv .venv || { \
	    echo "Could not create .venv. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-compile -c $(CONSTRAINTS) -e ".[$(EXTRAS)]"
	@echo '$(MADE_WITH)' > $@

# One pass from a data set to predictions; make prints each command before it runs it.
demo: install ## train, evaluate, export and predict on handwritten digits (no download)
	rm -rf runs/demo
	$(BIN)/keras-vit train --data digits --model ViTMicro4 --image-size 16 --out runs/demo
	$(BIN)/keras-vit evaluate runs/demo
	$(BIN)/keras-vit export runs/demo --to runs/demo/serving --tflite dynamic_range --full
	$(BIN)/keras-vit predict runs/demo/last.keras runs/demo/samples/*
	$(BIN)/keras-vit predict runs/demo/serving/vit runs/demo/samples/*
	$(BIN)/keras-vit predict runs/demo/serving/vit-files/1/dynamic_range.tflite runs/demo/samples/*

# File by file, in the order of their names: the last are short.
SPREAD := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# On JAX, the layers, whole models, their gradients and their weights, compiled quickly rather than
# well; test-all runs there all that computes, as users do.
ON_JAX := tests/layers tests/models/test_vit.py tests/models/test_feature_extractor.py \
    tests/weights/test_parity.py tests/weights/foundation
# Files and a page have no backend, and the rest takes minutes to compile.
NOT_ON_JAX := -k 'not written_back and not lists_every_difference and not small_differences and not resampling_equals \
    and not any_size and not pruning_block and not step_by_step and not most_probable and not freezing_all \
    and not keeps_a_constant and not half_precision and not mixed_precision and not equals_pil and not equals_scipy \
    and not continues_the_edge and not (those_of_the_library and not dinov3 and not siglip)'

# A thread for each process, which do not wait for each other then, and graphs that TensorFlow does
# not optimize; test-all computes as users do.
test: install ## run the tests: all on TensorFlow, then what computes on JAX
	TF_NUM_INTRAOP_THREADS=1 KERAS_VIT_TEST_QUICK=1 KERAS_BACKEND=tensorflow $(PYTEST) -q $(SPREAD)
	JAX_DISABLE_MOST_OPTIMIZATIONS=1 KERAS_BACKEND=jax $(PYTEST) -q $(SPREAD) $(NOT_ON_JAX) $(ON_JAX)

test-all: test-all-tensorflow test-all-jax ## the same and the slow tests

test-all-tensorflow: install
	KERAS_BACKEND=tensorflow $(PYTEST) -q $(SPREAD) -m ""

test-all-jax: install
	KERAS_BACKEND=jax $(PYTEST) -q $(SPREAD) -m "" tests/layers tests/models tests/weights tests/runs tests/tasks tests/training tests/doctor tests/visualization tests/test_zoo.py

# Only with PyTorch, which `install` does not bring: pip install -e ".[torch]".
test-torch: install ## run on PyTorch what computes: layers, whole models, weights, training steps
	KERAS_BACKEND=torch $(PYTEST) -q $(SPREAD) tests/layers tests/models/test_vit.py tests/models/test_position_kinds.py \
	    tests/weights/test_parity.py tests/weights/foundation

package: install ## build sdist and wheel and try the wheel outside the checkout
	$(PYTEST) -q -m "" tests/test_packaging.py

lint: install ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: install ## write the documentation site to build/site, and check it and its links
	$(BIN)/python -m pip install --disable-pip-version-check -q -c $(CONSTRAINTS) -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	$(BIN)/python .ci/check_site.py
	$(BIN)/linkchecker --no-status --no-warnings build/site/index.html

pictures: install ## remake the pictures of docs/: make pictures RUN=runs/flowers (needs Chromium)
	$(BIN)/python .ci/pictures.py $(RUN) $(if $(COMPARISON),--comparison $(COMPARISON)) $(if $(PRETRAINED),--pretrained $(PRETRAINED))

# Besides: serving_load.py wants an exported run, gpu.py a GPU and an environment without TensorFlow;
# faithfulness.py and pretraining.py ask for quality, not speed.
BENCHMARKS := onednn operators startup train_step input_wait input_pipeline token_merging
RESULTS ?= benchmarks/results
WHEN := $(shell date +%F)
BENCH := .venv-bench/bin/python
PEERS := $(BENCH) benchmarks/peers.py --out $(RESULTS)/peers_$(WHEN).json --precision float32 bfloat16
# All contestants of a race are in memory at once, and some compile for long: elsewhere the best.
FEW := --contestants keras_vit-user keras_vit-optimized keras_vit-optimized-openvino \
       keras_hub-user keras_hub-xla timm-eager timm-compile

# Exact versions of what is compared with, which the package itself does not need.
.venv-bench/.installed: pyproject.toml constraints.txt benchmarks/requirements.txt
	$(PYTHON) -m venv .venv-bench
	$(BENCH) -m pip install --disable-pip-version-check -q -c constraints.txt -e ".[onnx,openvino]" \
	    -r benchmarks/requirements.txt
	@touch $@

bench: .venv-bench/.installed ## run the benchmarks, for some two hours; a race in the file is not run again
	$(PEERS) --task inference training --size Ti --batch 8
	$(PEERS) --task inference --size Ti --batch 1 32
	$(PEERS) --task training --size Ti --batch 32 $(FEW)
	$(PEERS) --task inference training --size S B --batch 8 $(FEW)
	$(PEERS) --task inference training --size Ti --image-size 384 512 --batch 8 $(FEW)
	$(BENCH) benchmarks/plots.py $(RESULTS)/peers_$(WHEN).json
	@set -e; for name in $(BENCHMARKS); do \
	    echo "$(BENCH) benchmarks/$$name.py"; \
	    $(BENCH) benchmarks/$$name.py --out $(RESULTS)/$${name}_$(WHEN).md; done

notebooks: install ## execute every notebook
	$(PYTEST) -q -m "" tests/test_notebooks.py

clean: ## remove what building and testing left (keeps .venv, .venv-bench and runs)
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .cache
	find . -name __pycache__ -not -path './.venv*/*' -prune -exec rm -rf {} +
