from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from keras_vit import models
from keras_vit.runs.config import CommonConfig
from keras_vit.tasks.build import build_encoder, complete_preprocessing
from keras_vit.tasks.classification.network import build_network
from keras_vit.tasks.run_data import Run
from keras_vit.training import Recipe, RunConfig

pytestmark = pytest.mark.tensorflow

SMALL = Recipe(image_size=(8, 8), precision="float32")


@pytest.mark.slow
@pytest.mark.parametrize("model", [None, "MobileNetV2"])
def test_run_that_goes_on_reads_images_as_when_it_was_started(
    nano: str, model: str | None, tmp_path: Path
) -> None:
    run = Run(tmp_path)
    config = RunConfig("digits", model or nano, recipe=SMALL.replace(image_size=(32, 32)))
    network = build_network(config, ("a", "b"))
    preprocessing = models.preprocessing_of(network)
    assert preprocessing.exif_orientation
    assert preprocessing.dct_scaling
    earlier = (
        dataclasses.replace(preprocessing, **dict.fromkeys(names, False))
        for names in (["exif_orientation", "dct_scaling"], ["dct_scaling"])
    )
    for stored in (preprocessing, *earlier, preprocessing):
        run.write_config(config, {"preprocessing": stored.get_config()})
        complete_preprocessing(network, run, None, None, resume=True)
        assert models.preprocessing_of(network) == stored


def test_new_run_turns_images_upright_whatever_its_weights_did(
    nano: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = build_network(RunConfig("digits", nano, recipe=SMALL), ("a", "b"))
    preprocessing = models.preprocessing_of(network)
    earlier = models.rebuild(
        network,
        preprocessing=dataclasses.replace(preprocessing, exif_orientation=False, dct_scaling=False),
    )
    earlier.save(tmp_path / "earlier.keras")
    config = RunConfig("digits", nano, weights=str(tmp_path / "earlier.keras"), recipe=SMALL)
    new = build_network(config, ("a", "b"))
    capsys.readouterr()
    complete_preprocessing(new, Run(tmp_path / "run"), None, "pad", resume=False)
    assert "images are rotated according to their EXIF orientation;" in capsys.readouterr().out
    assert models.preprocessing_of(new) == dataclasses.replace(preprocessing, resize="pad")
    complete_preprocessing(new, Run(tmp_path / "run"), None, "pad", resume=False)
    assert capsys.readouterr().out == ""


def test_encoder_has_no_classifier_and_the_precision_of_training(nano: str) -> None:
    recipe = SMALL.replace(dropout_rate=0.1, remat=True)
    encoder = build_encoder(CommonConfig("photos", nano, recipe=recipe), "mixed_bfloat16")
    config = models.config_of(encoder)
    assert (config.classes, config.pooling, config.dropout_rate) == (0, "token", 0.1)
    assert encoder.output_shape == (None, 15)
    block = encoder.get_layer("block_01")
    assert (block.compute_dtype, block.remat) == ("bfloat16", True)


def test_encoder_says_which_weights_were_resized(
    nano: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_encoder(CommonConfig("photos", nano, recipe=SMALL)).save(tmp_path / "first.keras")
    config = CommonConfig("photos", nano, weights=str(tmp_path / "first.keras"))
    build_encoder(dataclasses.replace(config, recipe=SMALL.replace(image_size=(12, 16))))
    output = capsys.readouterr().out
    assert output.startswith("Note: ")
    assert "resized from (4, 4) to (6, 8)" in output


def test_encoder_without_class_token_has_the_mean_of_its_tokens() -> None:
    config = CommonConfig(
        "digits", "SigLIPB16", weights=None, recipe=SMALL.replace(image_size=(32, 32))
    )
    encoder = build_encoder(config)
    assert models.config_of(encoder).pooling == "gap"
    assert encoder.output_shape == (None, 768)
