"""Parts of images that evaluation and serving do not see."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from keras_vit.constants import CROP_RATIO
from keras_vit.preprocessing import Preprocessing

#: Name of each image -> height and width in pixels.
Sizes = Mapping[str, tuple[int, int]]


def cut_off(sizes: Sizes, preprocessing: Preprocessing, patch: int = 16) -> str:
    """Returns a sentence on images of which the center crop shows a small part, or `""`.

    Args:
        sizes: Sizes of the images.
        preprocessing: Preprocessing of the model.
        patch: Patch size, of which the recommended image size is a multiple.
    """
    height, width = preprocessing.size
    sides = np.array(list(sizes.values())).reshape(-1, 2)
    relative = sides[:, 1] / sides[:, 0] * height / width  # 1 for the model's aspect ratio
    cut = np.maximum(relative, 1 / relative) > CROP_RATIO[1]
    if preprocessing.resize != "crop" or not cut.any():
        return ""
    factor = float(np.median(relative[cut]))
    seen = preprocessing.crop_fraction * float(np.median(np.minimum(relative, 1 / relative)[cut]))
    high, wide = (
        math.ceil(side * max(1.0, by) / patch) * patch
        for side, by in ((height, 1 / factor), (width, factor))
    )
    return (
        f"{int(cut.sum())} of {len(cut)} images ({cut.mean():.0%}) are more than 4/3 times as wide "
        f"or as high as the model's input of {height} x {width} pixels (height x width): "
        f"evaluation and serving see their center, {seen:.0%} of the longer side at the median. "
        f"To see it all, use --image-size {high}x{wide}, --set resize=squash or --set resize=pad."
    )
