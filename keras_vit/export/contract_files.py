"""The pixel contract as text files inside an artefact, for readers without Keras."""

from __future__ import annotations

import json

from keras_vit.preprocessing import Preprocessing

PREPROCESSING = "preprocessing.json"
LABELS = "labels.txt"


def texts(contract: Preprocessing) -> dict[str, str]:
    r"""Returns the content of the files that travel with an exported model.

    Args:
        contract: The contract, with labels.

    Returns:
        `preprocessing.json`, which is the whole contract, and `labels.txt`, one label per line
        as mobile libraries expect.

    Example:
        >>> texts(Preprocessing(labels=("daisy", "rose")))["labels.txt"]
        'daisy\nrose\n'
    """
    return {
        PREPROCESSING: json.dumps(contract.get_config(), indent=2, ensure_ascii=False) + "\n",
        LABELS: "".join(f"{' '.join(label.split())}\n" for label in contract.labels or ()),
    }


def parse(preprocessing: str | bytes, artefact: str) -> Preprocessing:
    """Returns the contract that `preprocessing.json` describes.

    Args:
        preprocessing: The file's content.
        artefact: What the file belongs to, for messages.

    Returns:
        The contract.

    Raises:
        ValueError: If the content is damaged.

    Example:
        >>> contract = Preprocessing(size=(8, 12), labels=("daisy", "rose"))
        >>> parse(texts(contract)["preprocessing.json"], "serving/photos/1") == contract
        True
    """
    try:
        return Preprocessing.from_config(json.loads(preprocessing))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`path` must hold the {PREPROCESSING} that was exported with it; export it again. "
            f"Received: path={artefact!r}, with a damaged one: {error}"
        ) from error
