from __future__ import annotations

from keras_vit.export import contract_files
from keras_vit.preprocessing import Preprocessing

CONTRACT = Preprocessing(size=(10, 14), labels=("daisy", "Gänseblümchen", "two\nlines"))


def test_parse_restores_the_contract() -> None:
    text = contract_files.texts(CONTRACT)["preprocessing.json"]
    assert contract_files.parse(text) == CONTRACT
    assert contract_files.parse(text.encode()) == CONTRACT


def test_texts_have_one_line_per_label() -> None:
    assert contract_files.texts(CONTRACT)["labels.txt"] == "daisy\nGänseblümchen\ntwo lines\n"
