"""Recognition of annotation files that classification cannot use."""

from __future__ import annotations

import re

from keras_vit.storage.paths import AnyPath, names_below

_MASKS = r"masks?|labels?|gt|ground_?truth|segmentation\w*|annotations?"
# Kind of a file by its path relative to the data folder, in lowercase and with /.
_KINDS = {
    r"(.*/)?(_annotations\.coco|instances_.*|captions_.*|.*coco.*)\.json": "COCO annotations",
    r"(.*/)?(data|dataset)\.ya?ml": "the configuration of YOLO boxes",
    r"(.*/)?(labels|obj_train_data)/.*\.txt": "YOLO boxes",
    r"(.*/)?annotations?\.xml": "CVAT annotations",
    r".*\.xml": "Pascal VOC boxes",
    r"(.*/)?_annotations\.(csv|txt)": "a table of boxes",
    rf"(.*/)?({_MASKS})/.*\.(png|gif|bmp|tiff?)": "a mask of pixels",
    r".*\.json": "annotations such as those of labelme",
    r".*\.(xlsx?|ods|parquet)": "a table in a format other than CSV",
    r".*/.*\.(csv|tsv|jsonl)": "a table outside of the folder above all images",
}


def unusable_annotations(folder: AnyPath) -> str:
    """Returns a sentence on the first annotation file of a known kind, or an empty string."""
    names = names_below(folder)
    for pattern, kind in _KINDS.items():
        found = [name for name in names if re.fullmatch(pattern, name.lower())]
        if found:
            return (
                f"; {found[0]} contains {kind}, which cannot be used: export the dataset again "
                "with one class per image (class folders, or in the folder above all images a CSV "
                "table with the columns file and label)"
            )
    return ""
