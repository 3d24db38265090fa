from __future__ import annotations

import dataclasses

import pytest

from keras_vit import preprocessing_files
from keras_vit.preprocessing import Preprocessing

PREPROCESSING = Preprocessing(size=(10, 14), class_names=("daisy", "Gänseblümchen", "two\nlines"))


def test_parse_restores_the_contract() -> None:
    text = preprocessing_files.texts(PREPROCESSING)["preprocessing.json"]
    assert preprocessing_files.parse(text, "model.tflite") == PREPROCESSING
    assert preprocessing_files.parse(text.encode(), "model.tflite") == PREPROCESSING


@pytest.mark.parametrize("text", ["{", '{"siz": 8}', '{"size": 0}'])
def test_parse_names_the_artifact_of_a_damaged_contract(text: str) -> None:
    with pytest.raises(ValueError, match=r"export the model again\. Received: path='model.tflite'"):
        preprocessing_files.parse(text, "model.tflite")


def test_texts_have_one_line_per_label() -> None:
    assert (
        preprocessing_files.texts(PREPROCESSING)["labels.txt"]
        == "daisy\nGänseblümchen\ntwo lines\n"
    )


def test_texts_say_nothing_of_thresholds_that_there_are_not() -> None:
    assert "thresholds" not in preprocessing_files.texts(PREPROCESSING)["preprocessing.json"]
    several = dataclasses.replace(PREPROCESSING, thresholds=(0.25, 0.5, 0.75))
    text = preprocessing_files.texts(several)["preprocessing.json"]
    assert preprocessing_files.parse(text, "model.tflite") == several
