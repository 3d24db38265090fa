"""The one executor of the pixel contract: encoded image -> what the model receives.

All functions are graph-safe: they run eagerly, inside `tf.data` and inside a SavedModel.
H and W are the image's height and width, h and w the model's, C the number of channels.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from keras_vit.data import exif, image_headers
from keras_vit.data.exif import one_operator
from keras_vit.preprocessing import Preprocessing

_KERNELS = {"bilinear": "triangle", "bicubic": "keyscubic", "lanczos3": "lanczos3"}
# Three times as fast, without antialiasing, and bicubic to 1 / 1024 of a pixel.
_QUICK = {"bilinear": tf.raw_ops.ResizeBilinear, "bicubic": tf.raw_ops.ResizeBicubic}
_SHRINKING = 3 / 2  # from where on antialiasing is worth its time in training
# Weights of red, green and blue in units of 1 / 65536 (ITU-R BT.601), rounded as PIL rounds them.
_LUMA = (19595, 38470, 7471)


def decode(encoded: tf.Tensor, contract: Preprocessing) -> tf.Tensor:
    """Decodes a JPEG, PNG, GIF (first frame), BMP or WebP image.

    Images come out as PIL converts them to RGB: JPEGs to the bit, transparency is dropped. 16-bit
    channels are reduced to 8 bits. Animated WebP files and rare kinds of BMP and PNG are refused
    (`image_headers.Head`). The orientation that cameras note (Exif) in JPEG, PNG and WebP
    files is applied as `PIL.ImageOps.exif_transpose` does, unless the contract says otherwise.

    Args:
        encoded: The file's bytes, a scalar string.
        contract: Its `channels` and `exif_orientation`.

    Returns:
        Pixels (H, W, C), uint8, [0, 255].

    Raises:
        tf.errors.InvalidArgumentError: If the bytes are no complete image of a known format.

    Example:
        >>> png = tf.io.encode_png(tf.zeros((5, 7, 1), "uint8"))
        >>> decode(png, Preprocessing()).shape
        TensorShape([5, 7, 3])
    """
    return exif.turn(*decode_as_stored(encoded, contract))


def decode_as_stored(encoded: tf.Tensor, contract: Preprocessing) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes an image as `decode` does, but does not turn it upright.

    It is turned in less time once it has the model's size, by `fit` and `stretch`.

    Args:
        encoded: The file's bytes, a scalar string.
        contract: Its `channels` and `exif_orientation`.

    Returns:
        Pixels (H, W, C), uint8, [0, 255], and the orientation that they are stored in, 1 to 8.
    """
    image = tf.cond(
        tf.io.is_jpeg(encoded),
        # decode_image would use a faster transform that is off by one grey level on average.
        lambda: tf.io.decode_jpeg(encoded, channels=3, dct_method="INTEGER_ACCURATE"),
        lambda: _decode_others(encoded),
    )
    image = tf.ensure_shape(image, (None, None, 3))
    if contract.channels == "bgr":
        image = tf.reverse(image, axis=[-1])
    elif contract.channels == "grayscale":
        # Not all decoders know one channel, and they do not agree on the weights.
        luma = tf.reduce_sum(tf.cast(image, tf.int32) * _LUMA, axis=-1, keepdims=True)
        image = tf.cast((luma + 32768) // 65536, tf.uint8)
    if not contract.exif_orientation:
        return image, tf.constant(1, tf.int64)
    # Not while it decodes: an error there would cancel this, and `Dataset.ignore_errors` does not
    # ignore that.
    with tf.control_dependencies([image]):
        return image, exif.orientation(tf.identity(encoded))


@one_operator(input_signature=[tf.TensorSpec((), tf.string)])
def _decode_others(encoded: tf.Tensor) -> tf.Tensor:
    def decoded(content: tf.Tensor, channels: int = 3) -> tf.Tensor:
        image = tf.io.decode_image(content, channels, expand_animations=False)
        return tf.ensure_shape(image[..., :3], (None, None, 3))

    head = image_headers.head(encoded)
    content = tf.where(head.refused, b"", encoded)  # an empty file raises

    def bmp() -> tf.Tensor:
        image = decoded(content)
        # The decoder takes the indices of 8 bits for grey levels.
        bits = tf.io.decode_raw(tf.strings.substr(encoded, 28, 2), tf.uint8, fixed_length=2)[0]
        palette = image_headers.bmp_palette(encoded)
        return tf.cond(
            bits == 8, lambda: tf.gather(palette, tf.cast(image[..., 0], tf.int32)), lambda: image
        )

    branches = {
        "webp": lambda: decoded(content, channels=0),  # three would refuse transparency
        "gif": lambda: decoded(image_headers.first_frame(encoded)[0]),
        "bmp": bmp,
    }
    return tf.switch_case(
        head.format,
        [branches.get(name, lambda: decoded(content)) for name in image_headers.FORMATS],
    )


def fit(image: tf.Tensor, contract: Preprocessing, orientation: tf.Tensor | int = 1) -> tf.Tensor:
    """Resizes and crops an image to the model's size, and turns it upright.

    Args:
        image: Pixels (H, W, C), uint8 or float, [0, 255].
        contract: Its `size`, `resize`, `crop_fraction`, `interpolation` and `antialias`.
        orientation: That the image is stored in, 1 to 8 as in Exif; 1 for an upright one.

    Returns:
        Pixels (h, w, C), uint8, with a static shape.

    Example:
        >>> image = tf.zeros((50, 37, 3), "uint8")
        >>> fit(image, Preprocessing(size=(13, 17))).shape
        TensorShape([13, 17, 3])
    """
    if contract.interpolation == "nearest":  # which is not symmetric
        image, orientation = exif.turn(image, orientation), 1
    size = tf.constant(contract.size)
    sides = exif.swapped(tf.shape(image)[:2], orientation)  # (H, W) of the upright image
    if contract.resize == "squash":
        scaled, offset = size, tf.constant([0, 0])
    else:
        cover = tf.constant([int(side / contract.crop_fraction) for side in contract.size])
        scaled = cover if contract.resize == "squash_crop" else _covering(sides, cover)
        # Halves go to the even neighbour, as Python's `round` does in torchvision's CenterCrop.
        offset = tf.cast(tf.round((scaled - size) / 2), tf.int32)
    if contract.interpolation == "nearest":
        resized = _nearest(image, sides, contract.size, scaled, offset)
    else:
        offset = exif.mirrored(offset, scaled - size, orientation)
        size, scale, offset = (
            exif.swapped(each, orientation) for each in (size, scaled / sides, offset)
        )
        # Only the pixels inside the crop are computed: no huge image between resize and crop.
        resized = tf.raw_ops.ScaleAndTranslate(
            images=image[tf.newaxis],
            size=size,
            scale=tf.cast(scale, tf.float32),
            translation=-tf.cast(offset, tf.float32),
            kernel_type=_KERNELS[contract.interpolation],
            antialias=contract.antialias,
        )[0]
    return _rounded(exif.turn(resized, orientation), contract)


def stretch(
    image: tf.Tensor, contract: Preprocessing, orientation: tf.Tensor | int = 1
) -> tf.Tensor:
    """Resizes a whole image to the model's size, as `fit` squashes one, but for training.

    Bilinear and bicubic filters do not widen where the image shrinks to no less than two thirds,
    which takes a third of the time (docs/decisions/0010).

    Args:
        image: Pixels (H, W, C), uint8 or float, [0, 255].
        contract: Its `size`, `interpolation` and `antialias`.
        orientation: As of `fit`.

    Returns:
        Pixels (h, w, C), uint8, with a static shape.

    Example:
        >>> image = tf.zeros((50, 37, 3), "uint8")
        >>> stretch(image, Preprocessing(size=(13, 17))).shape
        TensorShape([13, 17, 3])
    """
    squashed = dataclasses.replace(contract, resize="squash")
    if contract.interpolation not in _QUICK:
        return fit(image, squashed, orientation)
    size = exif.swapped(tf.constant(contract.size), orientation)

    def quick() -> tf.Tensor:
        resize = _QUICK[contract.interpolation]
        resized = resize(images=image[tf.newaxis], size=size, half_pixel_centers=True)
        return _rounded(exif.turn(resized[0], orientation), contract)

    if not contract.antialias:
        return quick()
    return tf.cond(
        tf.reduce_max(tf.shape(image)[:2] / size) > _SHRINKING,
        lambda: fit(image, squashed, orientation),
        quick,
    )


def _rounded(pixels: tf.Tensor, contract: Preprocessing) -> tf.Tensor:
    # PIL rounds halves up; the cast cuts the fraction off.
    pixels = tf.saturate_cast(tf.cast(pixels, tf.float32) + 0.5, tf.uint8)
    return tf.ensure_shape(pixels, (*contract.size, contract.num_channels))


def _covering(sides: tf.Tensor, cover: tf.Tensor) -> tf.Tensor:
    """The smallest size of the image's aspect ratio that covers `cover`, in whole numbers."""
    wide, cover = tf.cast(sides, tf.int64), tf.cast(cover, tf.int64)
    fits_height = cover[0] * wide[1] >= cover[1] * wide[0]
    scaled = tf.where(fits_height, wide * cover[0] // wide[0], wide * cover[1] // wide[1])
    return tf.cast(scaled, tf.int32)


def _nearest(
    image: tf.Tensor,
    sides: tf.Tensor,
    size: tuple[int, int],
    scaled: tf.Tensor,
    offset: tf.Tensor,
) -> tf.Tensor:
    for axis in (0, 1):
        centres = tf.range(size[axis]) + offset[axis]
        # floor((i + 1/2) * side / scaled), without rounding errors
        nearest = (2 * tf.cast(centres, tf.int64) + 1) * tf.cast(sides[axis], tf.int64)
        nearest //= 2 * tf.cast(scaled[axis], tf.int64)
        image = tf.gather(image, nearest, axis=axis)
    return image


def scale(pixels: tf.Tensor, contract: Preprocessing) -> tf.Tensor:
    """Maps pixels to the values that the model was trained on.

    Args:
        pixels: (..., C), uint8 or float, [0, 255].
        contract: Its `mean` and `std`.

    Returns:
        `(pixels / 255 - mean) / std`, float32, of the same shape.

    Example:
        >>> scale(tf.constant([[0, 255, 0]], "uint8"), Preprocessing()).numpy()
        array([[-1.,  1., -1.]], dtype=float32)
    """
    return contract.scale(tf.cast(pixels, tf.float32))


def prepare(encoded: tf.Tensor, contract: Preprocessing) -> tf.Tensor:
    """Decodes, resizes, crops and scales: an image file as the model receives it.

    Args:
        encoded: The file's bytes, a scalar string.
        contract: The pixel contract.

    Returns:
        Model input (h, w, C), float32, with a static shape.

    Raises:
        tf.errors.InvalidArgumentError: If the bytes are no complete image of a known format.

    Example:
        >>> png = tf.io.encode_png(tf.zeros((5, 7, 1), "uint8"))
        >>> prepare(png, Preprocessing(size=3)).shape
        TensorShape([3, 3, 3])
    """
    return scale(decode_and_fit(encoded, contract), contract)


def decode_and_fit(encoded: tf.Tensor, contract: Preprocessing) -> tf.Tensor:
    """Returns pixels (h, w, C), uint8, of an image file: decoded, resized, cropped and upright."""
    image, orientation = decode_as_stored(encoded, contract)
    return fit(image, contract, orientation)
