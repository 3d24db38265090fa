from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from keras_vit.preprocessing import Preprocessing
from keras_vit.weights import metadata
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.infer_config import infer_fields
from keras_vit.weights.positions import POSITION, POSITIONS, PREFIX_POSITION, join_positions
from tests.helpers import tiny_config, tiny_model, weights_of

PREPROCESSING = Preprocessing(
    size=(15, 14), crop_fraction=0.7, std=(0.1, 0.2, 0.3), class_names=tuple("abcdefghijk")
)


def stored(**changes: Any) -> Checkpoint:
    """What a reader makes of a file of another library's names."""
    tensors = join_positions(weights_of(tiny_model(**changes)), tiny_config(**changes))
    origin = ("timm", {name: (f"their {name}",) for name in tensors}, ("mask_token",))
    return Checkpoint("m.safetensors", tensors, infer_fields(tensors), None, *origin)


def described(**changes: Any) -> dict[str, Any]:
    """The content of the metadata of such a file, to be damaged."""
    return json.loads(metadata.describe(tiny_config(**changes), PREPROCESSING)["keras_vit"])


def extend(content: Any, **changes: Any) -> Checkpoint:
    return metadata.extend(stored(**changes), {"format": "pt", "keras_vit": json.dumps(content)})


def test_extend_reads_metadata_of_an_earlier_version() -> None:
    content = described()
    del content["preprocessing"]["exif_orientation"]
    earlier = dataclasses.replace(PREPROCESSING, exif_orientation=False)
    assert extend(content).preprocessing == earlier


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"image_size": (6, 16), "epsilon": 1e-12, "gelu": "exact"},  # 2 x 8 patches, no 4 x 4
        {"position_embedding": "sincos_2d", "layer_scale": 0.1},
        {"position_embedding": "none", "pooling": "max"},
        {"image_size": (None, None), "position_grid": (5, 7), "dropout_rate": 0.1},
    ],
    ids=str,
)
def test_extend_tells_all_that_was_described(changes: dict[str, Any]) -> None:
    config, before = tiny_config(**changes), stored(**changes)
    checkpoint = metadata.extend(before, metadata.describe(config, PREPROCESSING))
    assert checkpoint.inferred == config.get_config() | {"position_grid": config.grid}
    assert checkpoint.preprocessing == PREPROCESSING
    assert checkpoint.tensors.keys() == weights_of(tiny_model(**changes)).keys()
    assert checkpoint.source == before.source
    table = (f"their {POSITIONS}",) if POSITIONS in before.tensors else ()
    if POSITION in checkpoint.tensors:
        assert checkpoint.names[POSITION] == checkpoint.names[PREFIX_POSITION]
        assert checkpoint.names[POSITION] == table
        assert checkpoint.ignored == ("mask_token",)
    else:
        assert checkpoint.ignored == ("mask_token", *table)


def test_layers_for_a_task_are_named_with_the_weights_to_pass() -> None:
    content = described(classes=0)
    with pytest.raises(ValueError, match=r"Update keras_vit.* classes=11 instead of 0"):
        extend(content)
    content["preprocessing"]["task"] = "regression"
    message = "Layers for the task 'regression' cannot be left out: pass the weights that its run "
    with pytest.raises(ValueError, match=f"{message}started from.* classes=11 instead of 0"):
        extend(content)


def test_extend_without_our_entry_changes_nothing() -> None:
    checkpoint = stored()
    assert metadata.extend(checkpoint, {"format": "pt"}) is checkpoint


def test_older_files_may_lack_newer_fields() -> None:
    content = described()
    del content["config"]["remainder"], content["preprocessing"]["antialias"]
    assert extend(content).inferred["remainder"] == "error"


def changed(part: str, **fields: Any) -> dict[str, Any]:
    content = described()
    content[part] |= fields
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "TypeError: list indices"),
        ({}, "KeyError: 'config'"),
        ({"config": [], "preprocessing": {}}, "TypeError: ViTConfig is stored as list"),
        ({"config": {}, "preprocessing": {}}, "TypeError: .*missing 5 required"),
        (changed("config", new_field=3), "unknown fields, or .* wrong type: new_field"),
        (changed("config", hidden_size="24"), "unknown fields, or .* wrong type: hidden_size"),
        (changed("config", num_layers=True), "unknown fields, or .* wrong type: num_layers"),
        (changed("config", class_token=1), "unknown fields, or .* wrong type: class_token"),
        (changed("config", patch_size=[3, 2, 1]), "unknown fields, or .* wrong type: patch_size"),
        (changed("config", patch_size=[3, "2"]), "unknown fields, or .* wrong type: patch_size"),
        (
            changed("config", classifier_activation={"class_name": "Dense"}),
            "unknown fields, or .* wrong type: classifier_activation",
        ),
        (changed("config", epsilon=float("nan")), "`epsilon` must be a positive number"),
        (changed("config", gelu="relu"), "`gelu` must be one of"),
        (changed("config", num_heads=5), "`hidden_size` must be a multiple of `num_heads`"),
        (changed("config", mlp_dim=31), "must match its .* mlp_dim=29 instead of 31"),
        (changed("config", image_size=[15, 10]), "must match its .* positions of shape"),
        (
            changed("config", image_size=[3 * 10**9, 2 * 10**9]),
            "at most 64,218,112 pixels and 65,536",
        ),
        (changed("preprocessing", labels=[1, 2]), "unknown fields, or .* wrong type: labels"),
        (changed("preprocessing", labels="ab"), "unknown fields, or .* wrong type: labels"),
        (changed("preprocessing", mean=[0.5, float("inf"), 0.5]), "`mean` must be one finite"),
        (changed("preprocessing", size=[0, 14]), "`size` must be a positive integer"),
    ],
)
def test_damaged_metadata_are_refused(content: Any, message: str) -> None:
    pattern = f"metadata 'keras_vit' of m.safetensors must be readable .*{message}"
    with pytest.raises(ValueError, match=pattern):
        extend(content)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no JSON", "JSONDecodeError"),
        ("[" * 100_000, "RecursionError"),
        (" " * (4 * 2**20 + 1), "longer than 4,194,304 characters"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"must be readable .*Update keras_vit.*{message}"):
        metadata.extend(stored(), {"keras_vit": text})


def test_random_metadata_never_fail_otherwise() -> None:
    """Bytes of real metadata are exchanged at random: a ValueError, or a sound checkpoint."""
    rng = np.random.default_rng(17)
    text = metadata.describe(tiny_config(), PREPROCESSING)["keras_vit"]
    checkpoint = stored()
    refused = 0
    for _ in range(2000):
        letters = list(text)
        for position in rng.integers(len(letters), size=rng.integers(1, 4)):
            letters[position] = chr(rng.integers(32, 127))
        try:
            metadata.extend(checkpoint, {"keras_vit": "".join(letters)})
        except ValueError:
            refused += 1
    assert 1000 < refused < 2000
