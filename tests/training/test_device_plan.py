from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import pytest

from keras_vit import models, zoo
from keras_vit.reports.cost import peak_memory
from keras_vit.runs.recipe import Recipe
from keras_vit.training.device_plan import FRAMEWORK, GIB, Plan, plan
from tests.helpers import tiny_config

pytestmark = pytest.mark.tensorflow

# Three steps of a ViT-S/16 on as many images as argv[1] says; prints the peak.
SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
from keras_vit import models
from keras_vit.reports.cost import peak_memory
from keras_vit.training.optimizers import build_optimizer
from keras_vit.runs.recipe import Recipe
from keras_vit.tasks.classification.objective import ClassificationObjective
from keras_vit.training.training_model import TrainingModel

batch = int(sys.argv[1])
network = models.build(models.size("S/16").replace(classifier_activation=None))
training_model = TrainingModel(ClassificationObjective(network), clip_norm=1.0)
training_model.compile(optimizer=build_optimizer(Recipe(), network, steps=100), jit_compile=False)
images = np.zeros((batch, 224, 224, 3), "float32")
labels = np.eye(1000, dtype="float32")[:batch]
data = tf.data.Dataset.from_tensors((images, labels)).repeat(3)
training_model.fit(data, steps_per_epoch=3, verbose=0)
print(peak_memory())
"""


@pytest.mark.slow
@pytest.mark.skipif(peak_memory() is None, reason="peak memory is not available without /proc")
def test_the_prediction_is_what_training_takes_on_a_cpu() -> None:
    measured, predicted = {}, {}
    for batch in (4, 16):
        result = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(batch)], capture_output=True, text=True, check=True
        )
        measured[batch] = int(result.stdout.split()[-1])
        recipe = Recipe(batch_size=batch)
        predicted[batch] = plan("ViTS16", recipe, device=GIB, compiled=True).total
    slopes = [(peak[16] - peak[4]) / 12 for peak in (predicted, measured)]
    assert slopes[0] / slopes[1] == pytest.approx(1, abs=0.1)  # measured: 0.995
    for batch in (4, 16):
        ratio = predicted[batch] / measured[batch]
        assert ratio == pytest.approx(1, abs=0.1), batch  # measured: 1.043 and 1.026


def test_plan_of_a_case_worked_by_hand() -> None:
    recipe = Recipe(batch_size=6, precision="float32", optimizer="sgd")
    found = Plan(tiny_config(), recipe, device=2 * GIB)
    memory = models.count_memory(tiny_config(), 6, state=1)
    assert found.memory == memory
    assert found.total == memory.total + FRAMEWORK
    assert found.fits
    numbers, flops = found.to_json(), models.count_flops(tiny_config())
    assert numbers["parameters"] == models.count_parameters(tiny_config())
    assert numbers["image_flops"] == flops
    assert numbers["step_flops"] == 6 * models.count_training_flops(tiny_config())
    assert dataclasses.replace(found, inference=True).to_json()["step_flops"] == 6 * flops


@pytest.mark.parametrize(
    "changes",
    [{}, {"remat": True}, {"precision": "mixed_bfloat16"}, {"accumulation_steps": 3}],
)
@pytest.mark.parametrize("inference", [False, True])
def test_the_largest_batch_fits_and_the_next_one_does_not(
    changes: dict[str, Any], inference: bool
) -> None:
    def of(batch: int) -> Plan:
        recipe = Recipe(batch_size=3).replace(**changes)
        parts = recipe.accumulation_steps
        return plan(
            "ViTS16", recipe.replace(batch_size=batch * parts), 6 * GIB, inference=inference
        )

    largest = of(1).largest_batch
    assert largest > 1
    assert of(largest).fits
    assert not of(largest + 1).fits
    assert of(largest + 1).largest_batch == largest


def test_parts_of_a_batch_and_averages_take_their_sets() -> None:
    found = Plan(tiny_config(), Recipe(batch_size=6), device=GIB)
    weights = 4 * models.count_parameters(tiny_config())
    divided = found.replace(accumulation_steps=3)
    assert divided.memory.activations * 3 == found.memory.activations
    assert divided.memory.gradients == 2 * weights
    assert found.replace(ema_momentum=0.9).memory.averages == weights
    assert found.replace(trainable=("head/*",)).memory.gradients == 4 * 275
    assert found.replace(precision="auto").precision == "float32"


def test_remedies_are_what_is_not_done_yet() -> None:
    found = plan("ViTL16", Recipe(batch_size=64), device=16 * GIB)
    assert not found.fits
    remedies = found.remedies()
    assert list(remedies) == [
        "precision=mixed_bfloat16",
        "remat=true",
        "optimizer=sgd",
        "precision=mixed_bfloat16 remat=true",
        "precision=mixed_bfloat16 remat=true optimizer=sgd",
        "accumulation_steps=8",
    ]
    assert all(other.total < found.total for other in remedies.values())
    assert remedies["accumulation_steps=8"].fits
    assert not found.replace(accumulation_steps=4).fits
    done = {"precision": "mixed_bfloat16", "remat": True, "optimizer": "sgd", "batch_size": 512}
    assert list(found.replace(**done).remedies()) == ["accumulation_steps=4"]
    small = dataclasses.replace(found, device=2 * GIB)
    assert small.largest_batch == 0
    assert not any(other.fits for other in small.remedies().values())
    large = plan("ViTG14", Recipe(batch_size=8), device=4 * GIB, inference=True)
    assert large.remedies() == {}  # casts of its weights take more than the rest saves
    predicting = dataclasses.replace(found.replace(batch_size=2048), inference=True)
    assert list(predicting.remedies()) == ["precision=mixed_bfloat16"]


def test_plan_takes_classes_size_and_dropout_from_its_arguments() -> None:
    recipe = Recipe(image_size=(96, 160), dropout_rate=0.1, stochastic_depth_rate=0.2)
    config = plan("ViTB16", recipe, GIB, classes=5).config
    assert config == zoo.ViTB16.config.replace(
        classes=5, image_size=(96, 160), dropout_rate=0.1, stochastic_depth_rate=0.2
    )


def test_to_json_has_every_number() -> None:
    found = Plan(tiny_config(), Recipe(), device=2 * GIB)
    content = json.loads(json.dumps(found.to_json()))
    assert sum(content["memory"].values()) == content["total"] == found.total
    assert content["largest_batch"] == found.largest_batch
    assert content["fits"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": 0}, "`device` must be a positive integer. Received: device=0"),
        ({"recipe": Recipe(trainable=("block_*",))}, r"`trainable` must be \('\*',\) or \('head/"),
        ({"recipe": Recipe(distillation="hard")}, "`distillation` must be 'none' for a plan"),
        ({"model": "ViTB61"}, "Did you mean 'ViTB16'?"),
        ({"classes": 0}, "`classes` must be a positive integer"),
    ],
)
def test_plan_refuses_what_it_has_no_formula_for(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(**{"model": "ViTTi16", "recipe": Recipe(), "device": GIB, **arguments})
