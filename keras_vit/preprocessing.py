"""Image preprocessing settings of a model, and the names of the ImageNet classes.

A `Preprocessing` is plain data and needs no backend. Only `keras_vit.data.decode_and_resize`
decodes and resizes images.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from typing import Annotated, Any

import keras
import numpy as np

from keras_vit import arguments, files
from keras_vit.arguments import among

RESIZE_METHODS = ("crop", "squash", "squash_crop", "pad")
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos3")
CHANNELS = {"rgb": 3, "bgr": 3, "grayscale": 1}
NAMES_IN_FILES = "labels"  # key of `class_names`
_MAX_PIXELS = 2**27  # before the center crop
_OPTIONAL_FIELDS = (
    *("thresholds", "task", "set_threshold", "coverage"),
    *("ood_threshold", "false_alarm_rate", "training_images"),
)
_LATER_FIELDS = ("exif_orientation", "dct_scaling")  # false in files of earlier versions


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """Settings that define how image files are preprocessed for a model.

    The same preprocessing is used in training, evaluation, prediction and every exported file:
    decode to uint8 pixels (height, width, channels), resize, crop, round to uint8 as in PIL, scale
    to float32. A model built with `preprocessing=` contains its preprocessing.

    Args:
        size: Height and width of the model's input, in pixels; one number means a square.
        resize: `"crop"` scales the image to cover `size / crop_fraction`, keeping the aspect
            ratio, and crops the center; `"squash"` scales to `size` without keeping the aspect
            ratio; `"squash_crop"` scales to `size / crop_fraction` without keeping the aspect
            ratio and crops the center; `"pad"` adds gray borders for the aspect ratio of `size`,
            and scales to `size`.
        crop_fraction: Fraction of the scaled image's side in the crop, in (0, 1]; ignored by
            `"squash"` and `"pad"`.
        interpolation: `"nearest"`, `"bilinear"`, `"bicubic"` or `"lanczos3"`.
        antialias: Whether the filter is widened when the image shrinks, as in PIL.
        mean: Subtracted from each channel, in units of pixel / 255; one number for all channels.
        std: Divides each channel, in units of pixel / 255; one number for all channels.
        channels: `"rgb"`, `"bgr"` or `"grayscale"`.
        class_names: Name of each class, in the order of the model's outputs, or None if unknown.
        thresholds: Thresholds of a multi-label model, one for each label, in (0, 1): labels with
            at least this probability are positive. None for mutually exclusive classes.
        set_threshold: Probability from which a class belongs to the prediction set, which contains
            the true class with probability `coverage`; None for no prediction sets.
        coverage: The probability that `set_threshold` was chosen for, in (0, 1).
        ood_threshold: Out-of-distribution score above which an image is unlike the training images;
            None for no scores.
        false_alarm_rate: The probability that `ood_threshold` was chosen for, in (0, 1), with which
            an image like the held-out ones exceeds it.
        training_images: Names of the training images, among which the model finds the nearest ones;
            None if it does not.
        exif_orientation: Whether images are rotated by the orientation in their Exif data. False
            in models saved before this field existed.
        dct_scaling: Whether a JPEG much larger than `size` is decoded at 1/2 or 1/4 of its size,
            in a fraction of the time, before resizing. Requires `antialias`. False in models
            saved before this field existed.
        task: Name of the task that the model was trained for, see `keras_vit.tasks.get`; None for
            classification.

    Raises:
        ValueError: If an argument is out of range, or the length of `mean` or `std` does not match
            `channels`, or that of `thresholds` does not match `class_names`.

    Examples:
        >>> preprocessing = Preprocessing(size=(32, 48), class_names=("daisy", "rose"))
        >>> preprocessing.scale(np.array([0, 255], "uint8").reshape(1, 1, 2, 1))[0, 0, :, 0]
        array([-1.,  1.], dtype=float32)
        >>> Preprocessing.from_config(preprocessing.get_config()) == preprocessing
        True
    """

    size: tuple[int, int] = (224, 224)
    resize: Annotated[str, among(*RESIZE_METHODS)] = "crop"
    crop_fraction: Annotated[float, arguments.positive_fraction] = 0.9
    interpolation: Annotated[str, among(*INTERPOLATIONS)] = "bicubic"
    antialias: bool = True
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    channels: Annotated[str, among(*CHANNELS)] = "rgb"
    class_names: tuple[str, ...] | None = None
    thresholds: tuple[float, ...] | None = None
    set_threshold: float | None = None
    coverage: float | None = None
    ood_threshold: float | None = None
    false_alarm_rate: float | None = None
    training_images: tuple[str, ...] | None = None
    exif_orientation: bool = True
    dct_scaling: bool = True
    task: str | None = None

    def __post_init__(self) -> None:
        arguments.check_kinds(self)
        # A frozen dataclass can only be normalized with object.__setattr__.
        object.__setattr__(self, "size", arguments.size_pair("size", self.size))
        if math.prod(self.size) > _MAX_PIXELS * self.crop_fraction**2:
            raise ValueError(
                f"`size` must be at most {_MAX_PIXELS:,} pixels before the crop. Received: "
                f"size={self.size}, crop_fraction={self.crop_fraction!r}"
            )
        for name in ("mean", "std"):
            object.__setattr__(self, name, self._per_channel(name))
        if min(self.std) <= 0:
            raise ValueError(f"`std` must be positive. Received: std={self.std!r}")
        factor, offset = self._linear()
        if not (np.isfinite([factor, offset]).all() and factor.min() > 0):
            raise ValueError(
                "`mean` and `std` must scale pixels to float32 numbers. Received: "
                f"mean={self.mean!r}, std={self.std!r}"
            )
        if self.class_names is not None:
            object.__setattr__(self, "class_names", tuple(str(name) for name in self.class_names))
        if self.thresholds is not None:
            object.__setattr__(self, "thresholds", self._checked_thresholds())

    def _per_channel(self, name: str) -> tuple[float, ...]:
        try:
            values = tuple(float(value) for value in np.ravel(getattr(self, name)))
        except OverflowError:  # an integer beyond floats
            values = (math.inf,)
        if len(values) == 1:
            values *= self.num_channels
        if len(values) != self.num_channels or not all(map(math.isfinite, values)):
            raise ValueError(
                f"`{name}` must be one finite number, or one for each of the {self.num_channels} "
                f"channels of {self.channels!r}. Received: {name}={getattr(self, name)!r}"
            )
        return values

    def _checked_thresholds(self) -> tuple[float, ...]:
        values = tuple(float(value) for value in np.ravel(np.asarray(self.thresholds)))
        if not values or not all(0 < value < 1 for value in values):
            raise ValueError(
                "`thresholds` must be numbers in (0, 1), one for each label. "
                f"Received: thresholds={self.thresholds!r}"
            )
        if self.class_names is not None and len(values) != len(self.class_names):
            raise ValueError(
                f"`thresholds` must contain one number for each of the {len(self.class_names)} "
                f"labels. Received: thresholds={self.thresholds!r}"
            )
        return values

    @property
    def num_channels(self) -> int:
        """Number of channels of the model's input images."""
        return CHANNELS[self.channels]

    def scale(self, pixels: Any) -> Any:
        """Scales pixels in [0, 255] to the value range that the model was trained on.

        Args:
            pixels: NumPy array of any numeric dtype, or float32 tensor of any backend,
                (..., channels).

        Returns:
            `(pixels / 255 - mean) / std` as a new float32 array or tensor of the same kind.

        Examples:
            >>> Preprocessing(mean=0.0, std=1.0).scale(np.full((1, 1, 3), 51.0)).round(6)
            array([[[0.2, 0.2, 0.2]]], dtype=float32)
        """
        factor, offset = self._linear()
        if len({*factor}) == len({*offset}) == 1:
            factor, offset = factor[0], offset[0]  # scalars are faster than vectors
        return _float32(pixels) * factor + offset

    def _linear(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the factor and the offset of each channel."""
        mean, std = np.array(self.mean), np.array(self.std)
        with np.errstate(over="ignore"):
            # Rounded to float32 only once, so that every backend uses the same factors.
            return (1 / (255 * std)).astype(np.float32), (-mean / std).astype(np.float32)

    def unscale(self, values: Any) -> Any:
        """Converts model inputs back to pixels in [0, 255]; the inverse of `scale`.

        Args:
            values: NumPy array or tensor, (..., channels).

        Returns:
            `(values * std + mean) * 255`, float32, not rounded.

        Examples:
            >>> preprocessing = Preprocessing(mean=0.0, std=1.0)
            >>> preprocessing.unscale(np.full((1, 1, 3), 0.2)).round(3)
            array([[[51., 51., 51.]]], dtype=float32)
        """
        mean, std = np.array(self.mean), np.array(self.std)
        return _float32(values) * (255 * std).astype(np.float32) + (255 * mean).astype(np.float32)

    def to_rgb(self, pixels: np.ndarray) -> np.ndarray:
        """Converts pixels from the preprocessing's channel order to RGB.

        Args:
            pixels: (..., channels) in the preprocessing's order.

        Returns:
            The pixels with red first; grayscale pixels are unchanged.

        Examples:
            >>> Preprocessing(channels="bgr").to_rgb(np.array([1, 2, 3])).tolist()
            [3, 2, 1]
        """
        return pixels[..., ::-1] if self.channels == "bgr" else pixels

    def present(self, probabilities: Any) -> Any:
        """Returns whether the probability of each label reaches the label's threshold.

        Args:
            probabilities: NumPy array or float32 tensor of any backend, (..., K), in [0, 1].

        Returns:
            Array or tensor of the same shape, bool, compared in float32 on every backend.

        Raises:
            ValueError: If the preprocessing has no thresholds.

        Examples:
            >>> Preprocessing(thresholds=(0.5, 0.2)).present(np.array([[0.5, 0.1], [0.4, 0.3]]))
            array([[ True, False],
                   [False,  True]])
        """
        if self.thresholds is None:
            raise ValueError(
                "`thresholds` must be given to predict several labels; the classes of this model "
                "are mutually exclusive. Received: thresholds=None"
            )
        return _float32(probabilities) >= np.array(self.thresholds, np.float32)

    def get_config(self) -> dict[str, Any]:
        """Returns the preprocessing as a JSON-serializable dictionary.

        It contains `thresholds`, `task`, `exif_orientation` and the like only if set or true, so
        that versions without these fields read all other files, and reject these.
        """
        config = dataclasses.asdict(self)
        for name in (*_OPTIONAL_FIELDS, *_LATER_FIELDS):
            if not config[name]:
                del config[name]
        names = {"class_names": NAMES_IN_FILES}
        return {names.get(k, k): list(v) if isinstance(v, tuple) else v for k, v in config.items()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Preprocessing:
        """Creates a preprocessing from a `get_config` result of this or any earlier version."""
        if not isinstance(config, dict):
            raise ValueError(f"`config` must be a dictionary. Received: {type(config).__name__}")
        names = {NAMES_IN_FILES: "class_names"}
        values: dict[str, Any] = {
            names.get(k, k): tuple(v) if isinstance(v, list) else v for k, v in config.items()
        }
        return cls(**{**dict.fromkeys(_LATER_FIELDS, False), **values})


def _float32(values: Any) -> Any:
    """Returns a NumPy array in float32, and a tensor unchanged."""
    return values.astype(np.float32) if isinstance(values, np.ndarray) else values


def preprocess_input(x: Any, data_format: str | None = None) -> Any:
    """Scales pixels in [0, 255] to [-1, 1], the input range of the original ViT checkpoints.

    Unlike the function of the same name in `keras.applications`, this function never overwrites
    float NumPy input.

    Args:
        x: Array or tensor with values in [0, 255], of any shape.
        data_format: `"channels_last"`, `"channels_first"` or None. Has no effect, because all
            channels are scaled equally.

    Returns:
        New float32 array (for NumPy input) or tensor of the same shape, values in [-1, 1].

    Raises:
        ValueError: If `data_format` is unknown.

    Examples:
        >>> preprocess_input(np.array([0, 51, 255], "uint8")).round(3)
        array([-1. , -0.6,  1. ], dtype=float32)
    """
    arguments.one_of("data_format", data_format, ("channels_last", "channels_first", None))
    tf = sys.modules.get("tensorflow")
    if tf and isinstance(x, tf.Tensor):  # in tf.data, on any Keras backend
        x = tf.cast(x, "float32")
    elif not isinstance(x, np.ndarray):
        x = keras.ops.cast(x, "float32")
    # With one channel, the scale is a scalar for any shape.
    return Preprocessing(channels="grayscale").scale(x)


def decode_predictions(preds: Any, top: int = 5) -> list[list[tuple[str, str, float]]]:
    """Returns the most probable ImageNet classes of each image, without network access.

    Args:
        preds: Scores (B, 1000), array or tensor.
        top: Number of classes to return for each image, in [1, 1000].

    Returns:
        For each image a list of `top` tuples (WordNet id, label, score), highest score first.

    Raises:
        ValueError: If `preds` does not have shape (B, 1000) or `top` is out of range.

    Examples:
        >>> decode_predictions(np.eye(1000)[[207]], top=1)
        [[('n02099601', 'golden_retriever', 1.0)]]
    """
    scores = keras.ops.convert_to_numpy(preds)
    if scores.ndim != 2 or scores.shape[1] != 1000:
        raise ValueError(
            "`preds` must have shape (batch, 1000), one score for each ImageNet class. For "
            "other classes use the class names of the model's preprocessing. Received: preds of "
            f"shape {scores.shape}"
        )
    if arguments.positive_int("top", top) > 1000:
        raise ValueError(f"`top` must be at most 1000. Received: top={top!r}")
    wnids, labels = imagenet_classes()
    best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    return [
        [(wnids[i], labels[i], float(row[i])) for i in order]
        for row, order in zip(scores, best, strict=True)
    ]


def imagenet_labels() -> tuple[str, ...]:
    """Returns the labels of the 1000 ImageNet classes, in the order of the class index.

    Two labels occur twice, for different classes: `crane` (bird and machine) and `maillot`.
    """
    return imagenet_classes()[1]


@functools.cache
def imagenet_classes() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the WordNet IDs and the labels of the 1000 ImageNet classes, as `imagenet_labels`."""
    lines = files.asset("imagenet_classes.txt").splitlines()
    pairs = [line.split(" ") for line in lines if not line.startswith("#")]
    return tuple(wnid for wnid, _ in pairs), tuple(label for _, label in pairs)
