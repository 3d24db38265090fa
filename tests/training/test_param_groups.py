from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from keras_vit import models, weights
from keras_vit.training import param_groups
from tests.helpers import tiny_config, tiny_model


def test_trainable_follows_the_patterns() -> None:
    model = tiny_model()
    param_groups.set_trainable(model, ["head/*", "block_01/*"])
    layers = {v.path.partition("/")[0] for v in model.trainable_variables}
    assert layers == {"head", "block_01"}
    param_groups.set_trainable(model, ["*"])
    assert len(model.trainable_variables) == len(model.weights)


def test_pattern_that_matches_nothing_is_refused() -> None:
    message = r"Every pattern of `trainable` must match .*'haed/\*'.*block_00, block_01.*head"
    with pytest.raises(ValueError, match=message):
        param_groups.set_trainable(tiny_model(), ["haed/*"])


def test_decay_is_kept_off_all_but_kernels() -> None:
    decayed = {v.path for v in tiny_model().weights if param_groups.decays(v, "kernels")}
    assert decayed == {v.path for v in tiny_model().weights if v.path.endswith("kernel")}
    assert all(param_groups.decays(v, "all") for v in tiny_model().weights)


def test_one_rate_without_layer_decay() -> None:
    assert set(param_groups.layer_rates(tiny_model().weights, tiny_config(), 1.0)) == {1.0}


def test_model_without_a_head_ends_with_its_last_block() -> None:
    model = tiny_model(classes=0)
    rates = param_groups.layer_rates(model.weights, tiny_config(classes=0), 0.5)
    by_layer = {v.path.partition("/")[0]: r for v, r in zip(model.weights, rates, strict=True)}
    assert by_layer == {
        "patch_encoder": 0.25, "block_00": 0.5, "block_01": 1.0, "encoder_norm": 1.0
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("index", range(3))
def test_layer_decay_equals_timm(test_data: Path, tmp_path: Path, index: int) -> None:
    content = json.loads((test_data / "reference" / "train" / "layer_decay.json").read_text())
    case = content["models"][index]
    depth = case["kwargs"].get("depth", 12)
    distilled = "distilled" in case["model"]
    mean = case["kwargs"].get("global_pool") == "avg"
    config = models.size("Ti/16").replace(
        num_layers=depth,
        pooling="gap" if mean else "token",
        norm_after_pooling=mean,
        distillation_token=distilled,
        distillation_head=distilled,
        gelu="exact",
        classes=1000,
    )
    model = models.build(config)
    rates = param_groups.layer_rates(model.weights, config, case["layer_decay"])
    # Every parameter says in its own tensor what it is: written as a timm file, names follow.
    for name, number in (("lr_scale", 0), ("weight_decay", 1)):
        for variable, rate in zip(model.weights, rates, strict=True):
            decay = case["weight_decay"] * param_groups.decays(variable, "kernels")
            variable.assign(np.full(variable.shape, (rate, decay)[number], "float32"))
        file = tmp_path / f"{name}.safetensors"
        with warnings.catch_warnings():  # about what a timm file does not contain
            warnings.simplefilter("ignore", UserWarning)
            weights.save_weights(model, file, "timm")
        tensors = safetensors.numpy.load_file(file)
        assert tensors.keys() == case["params"].keys()
        for theirs, tensor in tensors.items():
            expected = case["params"][theirs][name]
            np.testing.assert_allclose(tensor, expected, rtol=1e-6, err_msg=theirs)
