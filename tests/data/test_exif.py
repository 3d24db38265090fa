"""Orientations that cameras note, against Pillow."""

from __future__ import annotations

import io
import struct
import warnings
import zlib

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import tensorflow as tf

from keras_vit.data import (
    Augmentation,
    Examples,
    evaluation_dataset,
    exif,
    image_dataset,
    random_resized_crop,
    training_dataset,
)
from keras_vit.data.decode_and_resize import decode, decode_as_stored
from keras_vit.data.image_reading import Limits
from keras_vit.preprocessing import Preprocessing
from tests.data.readers import reader

ORDERS = {"little": "<", "big": ">"}
TAG, ASCII, SHORT, LONG, RATIONAL, SIGNED_SHORT, SIGNED_LONG = 0x0112, 2, 3, 4, 5, 8, 9
PHOTO = np.random.default_rng(2).integers(0, 256, (19, 29, 3), np.uint8)
FORMS = {
    "jpeg": {"format": "JPEG"},
    "progressive jpeg": {"format": "JPEG", "progressive": True},
    "png": {"format": "PNG"},
    "webp": {"format": "WEBP", "lossless": True},
}
PREFIX = b"Exif\0\0"


def block(number: int, order: str = "<", kind: int = SHORT) -> bytes:
    """Returns the Exif of a camera: its make and its resolution stand behind the directory."""
    short = kind in (SHORT, SIGNED_SHORT)
    value = struct.pack(f"{order}{'HH' if short else 'L'}", *((number, 0) if short else (number,)))
    entries = [
        struct.pack(f"{order}HHLL", 0x010F, ASCII, 7, 100),
        struct.pack(f"{order}HHL", TAG, kind, 1) + value,
        struct.pack(f"{order}HHLL", 0x011A, RATIONAL, 1, 108),
    ]
    head = struct.pack(f"{order}2sHLH", b"II" if order == "<" else b"MM", 42, 8, len(entries))
    ifd = head + b"".join(entries) + struct.pack(f"{order}L", 0)
    return ifd.ljust(100, b"\0") + b"Camera\0\0" + struct.pack(f"{order}LL", 72, 1)


def photo(form: str, told: bytes = b"", image: np.ndarray = PHOTO) -> bytes:
    file = io.BytesIO()
    extra = {"exif": PREFIX + told} if told else {}
    PIL.Image.fromarray(image).save(file, **FORMS[form], **extra)
    return file.getvalue()


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def chunk(name: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">L", len(content))
        + name
        + content
        + struct.pack(">L", zlib.crc32(name + content))
    )


def with_pil(encoded: bytes) -> np.ndarray:
    with PIL.Image.open(io.BytesIO(encoded)) as image:
        return np.asarray(PIL.ImageOps.exif_transpose(image).convert("RGB"))


def number_of(encoded: bytes) -> int:
    return int(exif.orientation(tf.constant(encoded)))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("form", FORMS)
def test_upright_is_as_pil_does_it(form: str, order: str) -> None:
    for number in range(10):
        encoded = photo(form, block(number, ORDERS[order]))
        found = decode(tf.constant(encoded), Preprocessing()).numpy()
        np.testing.assert_array_equal(found, with_pil(encoded), err_msg=str(number))
        assert found.shape == ((29, 19, 3) if 5 <= number <= 8 else (19, 29, 3))
        assert number_of(encoded) == (number if 1 <= number <= 8 else 1)


@pytest.mark.parametrize("form", FORMS)
def test_upright_is_for_the_contract_to_say(form: str) -> None:
    preprocessing = Preprocessing(exif_orientation=False)
    found = decode(tf.constant(photo(form, block(6))), preprocessing)
    np.testing.assert_array_equal(found, decode(tf.constant(photo(form)), preprocessing))


@pytest.mark.parametrize("channels", ["bgr", "grayscale"])
def test_upright_is_of_all_channels(channels: str) -> None:
    preprocessing = Preprocessing(channels=channels)
    found = decode(tf.constant(photo("png", block(6))), preprocessing)
    np.testing.assert_array_equal(
        found, np.rot90(decode(tf.constant(photo("png")), preprocessing), -1)
    )


@pytest.fixture
def examples() -> tuple[Examples, Examples]:
    """Photographs of every orientation and format, and the same with their pixels turned."""
    turned = [photo(form, block(n)) for n in range(1, 9) for form in FORMS]

    def make(encoded: list[bytes]) -> Examples:
        return Examples(
            names=tuple(f"{i:02d}" for i in range(len(encoded))),
            targets=np.arange(len(encoded)) % 2,
            class_names=("a", "b"),
            source="photographs",
            encoded=tuple(encoded),
        )

    return make(turned), make([photo("png", image=with_pil(file)) for file in turned])


@pytest.mark.slow
def test_pipelines_see_upright_images(examples: tuple[Examples, Examples]) -> None:
    preprocessing = Preprocessing(size=(13, 17))
    for make in (
        lambda some: training_dataset(some, preprocessing, Augmentation(), batch_size=8, epochs=1),
        lambda some: evaluation_dataset(some, preprocessing, batch_size=8),
        lambda some: image_dataset(some.encoded, preprocessing, batch_size=8),
    ):
        found, expected = (list(tf.nest.flatten(list(make(some)))) for some in examples)
        assert found
        for ours, theirs in zip(found, expected, strict=True):
            # Turned after resizing, which differs by one of 256 gray levels in 0.05% of the pixels.
            np.testing.assert_allclose(ours, theirs, atol=2 / 255 + 1e-6)
            assert np.mean(ours != theirs) < 0.002


def far(form: str, told: bytes, length: int) -> bytes:
    """Returns a photograph with metadata of other kinds before its Exif."""
    plain = photo(form)
    if form == "jpeg":
        xmp = segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + b"x" * 4100)
        profile = b"".join(
            segment(0xE2, b"ICC_PROFILE\0" + b"x" * 50_000) for _ in range(length // 50_000)
        )
        return plain[:2] + xmp + profile + segment(0xE1, PREFIX + told) + plain[2:]
    if form == "png":
        text = chunk(b"tEXt", b"Comment\0" + b"x" * length)
        return plain[:-12] + text + chunk(b"eXIf", told) + plain[-12:]
    told += b"\0" * (len(told) % 2)
    size = b"".join(struct.pack("<L", side - 1)[:3] for side in PHOTO.shape[1::-1])
    parts = struct.pack("<4sLL", b"VP8X", 10, 0x0C) + size + plain[12:]
    parts += struct.pack("<4sL", b"XMP ", length) + b"x" * length
    parts += struct.pack("<4sL", b"EXIF", len(told)) + told
    return struct.pack("<4sL4s", b"RIFF", len(parts) + 4, b"WEBP") + parts


PLACES = {
    "short": lambda form, number: photo(form, block(number)),
    "long": lambda form, number: photo(form, block(number, "<", LONG)),
    "big-endian long": lambda form, number: photo(form, block(number, ">", LONG)),
    "signed": lambda form, number: photo(
        form, block(number, "<", (SIGNED_SHORT, SIGNED_LONG)[number % 2])
    ),
    "far": lambda form, number: far(form, block(number), 4100),
    "very far, long": lambda form, number: far(form, block(number, ">", LONG), 400_000),
}


@pytest.mark.parametrize(
    ("form", "place"),
    [
        pytest.param(form, place, marks=pytest.mark.slow if form != "jpeg" and number else ())
        for form in ("jpeg", "png", "webp")
        for number, place in enumerate(PLACES)
    ],
)
def test_every_decoder_turns_every_orientation(form: str, place: str) -> None:
    files = [PLACES[place](form, number) for number in range(1, 9)]
    expected = [with_pil(file) for file in files]
    for number, (file, upright) in enumerate(zip(files, expected, strict=True), 1):
        assert upright.shape == ((29, 19, 3) if number >= 5 else (19, 29, 3))
        found = decode(tf.constant(file), Preprocessing())
        np.testing.assert_array_equal(found, upright, err_msg=str(number))
    preprocessing = Preprocessing(size=(13, 17))
    turned = [photo("png", image=image) for image in expected]
    # As in the SavedModel, and as in training.
    read_batch = reader(preprocessing, Limits())
    served, wanted = (read_batch(tf.constant(each)) for each in (files, turned))
    assert served.ok.numpy().all()
    np.testing.assert_allclose(served.pixels, tf.cast(wanted.pixels, tf.float32), atol=1)
    for seed in range(3):
        crops = [
            [
                random_resized_crop(
                    decode_as_stored(tf.constant(f), preprocessing),
                    [seed, 5],
                    preprocessing,
                ).numpy()
                for f in each
            ]
            for each in (files, turned)
        ]
        np.testing.assert_allclose(crops[0], np.array(crops[1], np.float32), atol=1)


def test_orientation_in_a_jpeg_need_not_stand_first() -> None:
    plain, told = photo("jpeg"), segment(0xE1, PREFIX + block(6))
    xmp = segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + b"x" * 3000)
    fill, comment = b"\xff" * 7, segment(0xFE, PREFIX + block(3))
    for before in (xmp, fill, comment, xmp + fill + comment):
        encoded = plain[:2] + before + told + plain[2:]
        assert number_of(encoded) == 6
        np.testing.assert_array_equal(
            decode(tf.constant(encoded), Preprocessing()), with_pil(encoded)
        )
    second = segment(0xE1, PREFIX + block(3))
    assert number_of(plain[:2] + told + second + plain[2:]) == 6
    assert number_of(plain[:2] + plain[-500:] + told) == 1  # no segment
    assert number_of(plain + told) == 1  # behind the image


def test_orientation_in_a_png_may_follow_the_pixels() -> None:
    plain, told = photo("png"), chunk(b"eXIf", block(8, ">"))
    text = chunk(b"tEXt", b"Comment\0 eXIf" + block(3))
    for encoded in (plain[:-12] + told + plain[-12:], plain[:33] + text + told + plain[33:]):
        assert number_of(encoded) == 8
        np.testing.assert_array_equal(
            decode(tf.constant(encoded), Preprocessing()), with_pil(encoded)
        )
    assert number_of(plain + told) == 1
    assert number_of(plain[:33] + text + plain[33:]) == 1


def test_orientation_in_a_webp_may_have_the_prefix_of_a_jpeg() -> None:
    encoded = photo("webp", PREFIX + block(5))
    assert encoded.count(PREFIX) == 1
    assert number_of(encoded) == 5
    np.testing.assert_array_equal(decode(tf.constant(encoded), Preprocessing()), with_pil(encoded))


def test_other_formats_have_no_orientation() -> None:
    for head in (b"GIF89a", b"BM", b"RIFF", b"RIFF\0\0\0\0WEBPVP8 ", b"\xff\xd8", b"", b"E"):
        content = head.ljust(12, b"\0") + b"EXIF" + struct.pack("<L", 116) + block(6)
        assert number_of(content if len(head) > 1 else head) == 1
        assert number_of(head) == 1


def test_search_for_a_chunk_ends() -> None:
    plain, told = photo("png"), chunk(b"eXIf", block(8))
    for count, number in ((4000, 8), (200_000, 1)):
        assert number_of(plain[:33] + chunk(b"aaAa", b"") * count + told + plain[33:]) == number


EXTREMES = (0, 1, 4, 8, 10, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFF4, 0xFFFF_FFFF, 65_535)


def mutated(generator: np.random.Generator) -> bytes:
    """Damages an Exif block in one to three ways."""
    order = "<>"[generator.integers(2)]
    data = bytearray(block(int(generator.integers(1, 9)), order))
    for _ in range(generator.integers(1, 4)):
        place = int(generator.integers(min(len(data), 50) + 1))
        match generator.integers(6):
            case 0:  # a directory anywhere: at itself, behind the end, at 2^31 and more
                value = (*EXTREMES, generator.integers(120))[generator.integers(11)]
                data[4:8] = struct.pack(f"{order}L", int(value))
            case 1:  # more entries than there are
                data[8:10] = struct.pack(f"{order}H", int(generator.integers(65_536)))
            case 2:  # counts and offsets of an entry
                entry = 10 + 12 * int(generator.integers(3)) + (4, 8)[generator.integers(2)]
                data[entry : entry + 4] = struct.pack(
                    f"{order}L", EXTREMES[generator.integers(len(EXTREMES))]
                )
            case 3:
                del data[place:]
            case 4:
                data[place : place + 1] = generator.bytes(1)
            case _:
                data[place:place] = generator.bytes(int(generator.integers(1, 13)))
    return bytes(data)


def read_by_pil(encoded: bytes) -> int | None:
    """Returns what Pillow reads, if it is one number of 16 or 32 bits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with PIL.Image.open(io.BytesIO(encoded)) as image:
                found = image.getexif()
                length = len(found._info._tagdata[TAG])
                sizes = {SHORT: 2, SIGNED_SHORT: 2, LONG: 4, SIGNED_LONG: 4}
                one = sizes.get(found._info.tagtype[TAG]) == length
                return found[TAG] if one else None
        except Exception:  # of many kinds
            return None


@pytest.mark.slow
def test_orientation_of_hostile_blocks_is_that_of_pil() -> None:
    generator = np.random.default_rng(23)
    blocks = [mutated(generator) for _ in range(5000)]
    forms = ("jpeg", "png", "webp")
    files = [photo(forms[i % 3], told or b"\0", PHOTO[:2, :5]) for i, told in enumerate(blocks)]

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)], autograph=False)
    def read(encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.map_fn(
            lambda file: (
                exif.orientation(file),
                tf.shape(decode(file, Preprocessing())),
            ),
            encoded,
            fn_output_signature=(tf.int64, tf.int32),
        )

    numbers, shapes = (found.numpy() for found in read(tf.constant(files)))
    by_pil = 0
    for number, shape, told, file in zip(numbers, shapes, blocks, files, strict=True):
        assert shape.tolist() == ([5, 2, 3] if number >= 5 else [2, 5, 3])
        expected = read_by_pil(file)
        if expected is not None:
            by_pil += 1
            assert number == (expected if 1 <= expected <= 8 else 1)
        elif number != 1:  # Pillow stops at an entry whose data lies behind the end
            entries = [
                struct.pack(f"{order}HHL{size}", TAG, kind, 1, number)
                for order in "<>"
                for kind, size in (
                    (SHORT, "H"),
                    (LONG, "L"),
                    (SIGNED_SHORT, "H"),
                    (SIGNED_LONG, "L"),
                )
            ]
            assert any(entry in told for entry in entries)
    assert by_pil > 1000
