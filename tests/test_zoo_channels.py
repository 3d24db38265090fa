from __future__ import annotations

from pathlib import Path

import pytest

from keras_vit.models import preprocessing_of
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights import read_checkpoint
from keras_vit.zoo import ViTMicro4
from tests.weights.files import official_tensors, save

# At 20 pixels: a grid of 5 x 5.
MICRO = ViTMicro4.config.replace(image_size=(20, 20))
NUMBERS = {"rgb": 3, "grayscale": 1}


@pytest.mark.parametrize(
    ("old", "new", "mean", "std"),
    [
        ("rgb", "grayscale", (0.125, 0.25, 0.375), (0.5, 0.25, 0.75)),
        ("grayscale", "rgb", (0.25,), (0.5,)),
    ],
)
def test_another_number_of_channels_keeps_the_scaling_of_gray_images(
    old: str, new: str, mean: tuple[float, ...], std: tuple[float, ...], tmp_path: Path
) -> None:
    path = save(tmp_path, official_tensors(MICRO.replace(channels=NUMBERS[old])))
    stored = Preprocessing(channels=old, mean=mean, std=std, crop_fraction=0.7)
    checkpoint = read_checkpoint(path).replace(preprocessing=stored)
    with pytest.warns(UserWarning, match="channel"):
        model = ViTMicro4(weights=checkpoint, input_shape=(20, 20, NUMBERS[new]))
    assert preprocessing_of(model) == Preprocessing(
        size=(20, 20), channels=new, mean=0.25, std=0.5, crop_fraction=0.7
    )
