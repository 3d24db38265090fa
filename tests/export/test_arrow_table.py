from __future__ import annotations

from keras_vit.export.arrow_table import arrow_table


def test_columns_have_the_types_of_their_values_with_and_without_them() -> None:
    values = {
        "file": "a.jpg",
        "label_2": "ant",
        "set_size": 2,
        "in_distribution": True,
        "left": 0.5,
        "embedding": [1.5],
    }
    filled, empty = arrow_table([values], list(values)), arrow_table([{}, {}], list(values))
    assert filled.to_pylist() == [values]
    assert empty.num_rows == 2
    assert empty.schema.types == filled.schema.types
