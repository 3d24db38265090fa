from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from keras_vit.doctor.scaling_candidates import (
    PREPARED,
    REVERSED,
    TWICE,
    candidates,
    scaled,
)
from keras_vit.preprocessing import Preprocessing

PIXELS = np.array([0.0, 51.0, 255.0]).reshape(1, 1, 3, 1).repeat(3, axis=-1)


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("0..255", [0, 51, 255]),
        ("0..1", [0, 0.2, 1]),
        ("-1..1", [-1, -0.6, 1]),
        ("imagenet", [-0.485 / 0.229, (0.2 - 0.485) / 0.229, (1 - 0.485) / 0.229]),
        ("caffe", [-103.939, 51 - 103.939, 255 - 103.939]),
    ],
)
def test_scales_are_what_their_names_say(scale: str, expected: list[float]) -> None:
    found = scaled(Preprocessing(size=3), scale)
    np.testing.assert_allclose(found.scale(PIXELS)[0, 0, :, 0], expected, atol=1e-4)
    assert found.size == (3, 3)
    assert found.channels == ("bgr" if scale == "caffe" else "rgb")


def test_scaled_twice_is_scaling_what_is_scaled() -> None:
    preprocessing = Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    twice = preprocessing.scale(preprocessing.scale(PIXELS))
    np.testing.assert_allclose(candidates(preprocessing)[TWICE].scale(PIXELS), twice, rtol=1e-5)


def test_candidates_do_not_repeat_what_is_believed() -> None:
    assert set(candidates(Preprocessing())) == {
        PREPARED, TWICE, REVERSED, "0..255", "0..1", "imagenet", "caffe",
    }  # fmt: skip
    raw = candidates(Preprocessing(mean=0.0, std=1 / 255))
    assert "0..255" not in raw
    assert TWICE not in raw  # twice nothing is nothing


def test_candidates_for_one_channel_need_no_three() -> None:
    assert set(candidates(Preprocessing(channels="grayscale"))) == {
        PREPARED, TWICE, "0..255", "0..1",
    }  # fmt: skip


def test_reversed_channels_change_the_order_alone() -> None:
    assert candidates(Preprocessing(channels="bgr"))[REVERSED] == Preprocessing()


def test_scaled_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match=r"`pixels` must be one of .*'0..255', .*pixels='0..2'"):
        scaled(Preprocessing(), "0..2")
    with pytest.raises(
        ValueError, match=r"`pixels` must be a pixel scaling for 1 channels, .*pixels='imagenet'"
    ):
        scaled(Preprocessing(channels="grayscale"), "imagenet")


def test_scaled_keeps_all_else() -> None:
    preprocessing = Preprocessing(size=(5, 7), resize="squash", class_names=("daisy", "rose"))
    expected = dataclasses.replace(preprocessing, mean=0.0, std=1.0)
    assert scaled(preprocessing, "0..1") == expected
