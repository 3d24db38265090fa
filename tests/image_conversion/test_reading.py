from __future__ import annotations

import io
import zlib
from pathlib import Path

import numpy as np
import PIL.features
import PIL.Image
import pytest
from PIL import ImageCms

from keras_vit import image_formats
from keras_vit.image_conversion import reading
from tests.image_conversion.samples import DISPLAY_P3, deep_png, deep_tiff

SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
RAMP = np.arange(5 * 7 * 3).reshape(5, 7, 3) * 39 + 17  # 17 to 4073: 12 of 16 bits
STRETCHED = np.rint((RAMP - 17) * 255 / (4073 - 17)).astype(np.uint8)


def read(
    path: Path, format: str = "TIFF", window: tuple[float, float] | None = None, max_side: int = 0
) -> reading.Picture:
    return reading.read_picture(path, format, window, max_side or None)


def decoded(path: Path, max_side: int | None = None) -> tuple[bool, bool]:
    head = image_formats.read_head(path)
    format = image_formats.image_format(head, path.name)
    return reading.is_decoded(path, format, head, max_side)


def noise(height: int = 13, width: int = 17) -> PIL.Image.Image:
    random = np.random.default_rng(3)
    return PIL.Image.fromarray(random.integers(0, 256, (height, width, 3), np.uint8))


@pytest.mark.parametrize(
    ("mode", "name", "expected"),
    [
        ("RGB", "a.jpg", True),
        ("L", "a.jpg", True),
        ("CMYK", "a.jpg", False),
        ("RGBA", "a.png", True),
        ("P", "a.png", True),
        ("I;16", "a.png", False),
        ("P", "a.gif", True),
        ("RGBA", "a.webp", True),
        ("RGB", "a.bmp", True),
        ("RGBA", "a.bmp", True),
        ("P", "a.bmp", False),
        ("1", "a.bmp", False),
        ("RGB", "a.tif", False),
    ],
)
def test_is_decoded_knows_what_tensorflow_reads(
    tmp_path: Path, mode: str, name: str, expected: bool
) -> None:
    PIL.Image.new(mode, (5, 7)).save(tmp_path / name)
    assert decoded(tmp_path / name) == (expected, False)


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.gif", "a.webp", "a.bmp"])
def test_is_decoded_looks_at_the_longer_side(tmp_path: Path, name: str) -> None:
    PIL.Image.new("RGB", (5, 7)).save(tmp_path / name)
    assert decoded(tmp_path / name, 7)[0]
    assert not decoded(tmp_path / name, 6)[0]


@pytest.mark.parametrize("name", ["a.jpg", "a.png"])
def test_is_decoded_looks_at_the_profile(tmp_path: Path, name: str) -> None:
    for profile, expected in (
        (SRGB, (True, False)),
        (DISPLAY_P3, (False, False)),
        (b"no profile at all", (True, True)),
    ):
        noise().save(tmp_path / name, icc_profile=profile)
        assert decoded(tmp_path / name) == expected
    noise().convert("L").save(tmp_path / name, icc_profile=SRGB)  # of colour, in a grey image
    assert decoded(tmp_path / name) == (True, True)


def test_colours_are_converted_to_srgb(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    PIL.Image.new("RGB", (5, 7), (200, 30, 40)).save(path, icc_profile=DISPLAY_P3)
    found = read(path)
    # Reference by matrices: P3 red is more saturated than what sRGB calls (200, 30, 40).
    linear = (np.array([200, 30, 40]) / 255) ** 2.2
    p3_to_srgb = np.array([[1.2249, -0.2247, 0], [-0.0420, 1.0419, 0], [-0.0197, -0.0786, 1.0979]])
    linear = np.clip(p3_to_srgb @ linear, 0, 1)
    expected = 255 * np.where(
        linear > 0.0031308, 1.055 * linear ** (1 / 2.4) - 0.055, 12.92 * linear
    )
    np.testing.assert_allclose(found.image.getpixel((2, 3)), expected, atol=4)
    assert abs(expected - (200, 30, 40)).max() > 15
    assert not found.image.info.get("icc_profile")
    assert not found.bad_profile


def test_damaged_profile_is_ignored(tmp_path: Path) -> None:
    noise().save(tmp_path / "a.tif", icc_profile=DISPLAY_P3[:300])
    found = read(tmp_path / "a.tif")
    assert found.bad_profile
    np.testing.assert_array_equal(found.image, noise())


def test_cmyk_is_converted(tmp_path: Path) -> None:
    PIL.Image.new("CMYK", (5, 7), (255, 0, 0, 0)).save(tmp_path / "a.jpg", quality=100)
    found = read(tmp_path / "a.jpg", "JPEG").image
    assert found.mode == "RGB"
    np.testing.assert_allclose(found.getpixel((2, 3)), (0, 255, 255), atol=2)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_16_bit_png_is_stretched_with_all_its_bits(tmp_path: Path, channels: int) -> None:
    colours = channels if channels in (1, 3) else channels - 1
    values = np.concatenate([RAMP, RAMP[..., :1]], axis=-1)
    values = values[..., :3] if channels == 3 else values[..., :channels]
    if channels in (2, 4):
        values = np.concatenate([RAMP[..., :colours], np.full((5, 7, 1), 60000)], axis=-1)
    (tmp_path / "a.png").write_bytes(deep_png(values))
    found = read(tmp_path / "a.png", "PNG")
    low, high = RAMP[..., :colours].min(), RAMP[..., :colours].max()
    assert found.window == (low, high)
    expected = np.rint((RAMP[..., :colours] - low) * 255 / (high - low))
    np.testing.assert_array_equal(np.asarray(found.image).reshape(5, 7, colours), expected)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("deflate", [False, True])
@pytest.mark.parametrize("channels", [3, 4])
def test_16_bit_tiff_is_stretched_with_all_its_bits(
    tmp_path: Path, order: str, deflate: bool, channels: int
) -> None:
    values = np.concatenate([RAMP, np.full((5, 7, 1), 60000)], axis=-1)[..., :channels]
    (tmp_path / "a.tif").write_bytes(deep_tiff(values, 2, order, deflate))
    found = read(tmp_path / "a.tif")
    assert found.window == (17, 4073)
    np.testing.assert_array_equal(found.image, STRETCHED)


@pytest.mark.parametrize(("photometric", "inverted"), [(1, False), (0, True)])
def test_16_bit_grey_tiff_may_have_white_as_zero(
    tmp_path: Path, photometric: int, inverted: bool
) -> None:
    (tmp_path / "a.tif").write_bytes(deep_tiff(RAMP[..., :1], photometric))
    found = np.asarray(read(tmp_path / "a.tif", window=(17, 4073)).image)
    expected = STRETCHED[..., 0]
    np.testing.assert_array_equal(255 - found if inverted else found, expected)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_32_bit_tiff_is_stretched(tmp_path: Path, dtype: type) -> None:
    values = RAMP[..., 0].astype(dtype) - 1000
    PIL.Image.fromarray(values).save(tmp_path / "a.tif")
    found = read(tmp_path / "a.tif")
    assert found.window == (values.min(), values.max())
    expected = np.rint((values - values.min()) * 255.0 / np.ptp(values))
    np.testing.assert_array_equal(found.image, expected)


def test_window_sets_what_is_black_and_white(tmp_path: Path) -> None:
    PIL.Image.fromarray(np.uint16([[0, 100, 200, 300, 65535]])).save(tmp_path / "a.png")
    found = read(tmp_path / "a.png", "PNG", (100, 300))
    assert found.window == (100, 300)
    assert np.asarray(found.image).tolist() == [[0, 0, 128, 255, 255]]


def test_scaled_survives_constant_and_missing_values() -> None:
    assert reading.scaled(np.uint16([[7, 7]]), (7, 7)).tolist() == [[0, 0]]
    values = np.float32([[np.nan, 1, 3, np.inf]])
    assert reading._range(values) == (1, 3)
    assert reading._range(np.float32([[np.nan]])) == (0, 0)
    assert reading.scaled(values, (1, 3)).tolist() == [[0, 0, 255, 255]]


def test_max_side_shrinks_only(tmp_path: Path) -> None:
    noise(13, 17).save(tmp_path / "a.tif")
    assert read(tmp_path / "a.tif", max_side=11).image.size == (11, 8)
    assert read(tmp_path / "a.tif", max_side=19).image.size == (17, 13)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["a.heic", "a.avif", "a.tif", "a.png"])
def test_image_is_turned_upright_once(tmp_path: Path, name: str, orientation: int) -> None:
    quarters = np.zeros((24, 32, 3), np.uint8)  # a red corner, a green one
    quarters[:12, :16, 0] = quarters[:12, 16:, 1] = 255
    image = PIL.Image.fromarray(quarters)
    if name == "a.heic":
        pytest.importorskip("pillow_heif").register_heif_opener()
    elif name == "a.avif" and not PIL.features.check("avif"):
        pytest.skip("this Pillow writes no AVIF")
    moves = PIL.Image.Transpose
    stored = {  # the inverse of what turns it upright
        **{2: moves.FLIP_LEFT_RIGHT, 3: moves.ROTATE_180, 4: moves.FLIP_TOP_BOTTOM},
        **{5: moves.TRANSPOSE, 6: moves.ROTATE_90, 7: moves.TRANSVERSE, 8: moves.ROTATE_270},
    }
    turned = image.transpose(stored[orientation]) if orientation > 1 else image
    turned.getexif()[0x0112] = (
        orientation  # pillow-heif also writes it as HEIC demands, beside Exif
    )
    lossy = {"quality": 95} if name in ("a.heic", "a.avif") else {}
    turned.save(tmp_path / name, exif=turned.getexif().tobytes(), **lossy)
    format = {"heic": "HEIC", "avif": "AVIF", "tif": "TIFF", "png": "PNG"}[name[2:]]
    found = read(tmp_path / name, format).image
    assert found.size == (32, 24)
    assert not found.getexif()
    pixels = np.asarray(found).astype(int)
    assert pixels[4, 5, 0] > 200 > 60 > pixels[4, 5, 1]
    assert pixels[4, 27, 1] > 200 > 60 > pixels[4, 27, 0]
    assert pixels[20, 5].max() < 60


def test_pages_after_the_first_are_counted(tmp_path: Path) -> None:
    noise(5, 7).save(tmp_path / "a.tif", save_all=True, append_images=[noise(), noise()])
    found = read(tmp_path / "a.tif")
    assert (found.pages, found.image.size) == (2, (7, 5))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
def test_modes_become_grey_or_rgb(tmp_path: Path, mode: str) -> None:
    noise().convert(mode).save(tmp_path / "a.tif")
    found = read(tmp_path / "a.tif")
    assert found.image.mode == ("L" if mode in ("1", "L", "LA") else "RGB")
    assert found.window is None


def test_pixel_limit_is_restored() -> None:
    before = PIL.Image.MAX_IMAGE_PIXELS
    with reading.pixel_limit():
        assert before != PIL.Image.MAX_IMAGE_PIXELS
    assert before == PIL.Image.MAX_IMAGE_PIXELS


def test_image_of_too_many_pixels_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.ppm").write_bytes(b"P6\n20000 10001\n255\n")
    with reading.pixel_limit(), pytest.raises(PIL.Image.DecompressionBombError) as error:
        read(tmp_path / "a.ppm", "Netpbm")
    assert reading.failure(error.value, "Netpbm") == "more than 200 megapixels"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(13, "denied"), "no permission to read it"),
        (MemoryError(), "not enough memory"),
        (PIL.UnidentifiedImageError("x"), "damaged, or a kind of TIFF that Pillow"),
        (OSError("image file is truncated\nmore"), "cannot be read as TIFF: image file is trunc"),
        (KeyError(), "cannot be read as TIFF: KeyError"),
    ],
)
def test_failure_says_why(error: Exception, reason: str) -> None:
    assert reading.failure(error, "TIFF").startswith(reason)
    assert "\n" not in reading.failure(error, "TIFF")


def test_ghostscript_is_never_started(tmp_path: Path) -> None:
    noise().save(tmp_path / "a.eps")
    (tmp_path / "a.eps").rename(tmp_path / "a.tga")
    with pytest.raises(PIL.UnidentifiedImageError):
        read(tmp_path / "a.tga", "TGA")


def test_missing_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading.importlib.util, "find_spec", lambda name: None)
    assert reading.missing_extra("HEIC") == "formats"
    assert reading.missing_extra("DICOM") == "dicom"
    assert reading.missing_extra("TIFF") is None


def write_dicom(path: Path, values: np.ndarray, **fields: object) -> None:
    """Writes frames (N, H, W), grey values of 16 or 8 bits."""
    pydicom = pytest.importorskip("pydicom")
    from pydicom.uid import ExplicitVRLittleEndian

    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.2"
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    dataset = pydicom.dataset.Dataset()
    dataset.file_meta = meta
    bits = 8 * values.dtype.itemsize
    dataset.NumberOfFrames, dataset.Rows, dataset.Columns = values.shape
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated = dataset.BitsStored = bits
    dataset.HighBit = bits - 1
    dataset.PixelRepresentation = int(values.dtype.kind == "i")
    dataset.PixelData = values.tobytes() + bytes(values.nbytes % 2)
    for name, value in fields.items():
        setattr(dataset, name, value)
    dataset.save_as(path, enforce_file_format=True)


FRAMES = np.int16(np.arange(2 * 5 * 7).reshape(2, 5, 7) * 40 - 100)


def test_dicom_takes_the_range_of_its_first_frame(tmp_path: Path) -> None:
    write_dicom(tmp_path / "a.dcm", FRAMES, RescaleSlope=2, RescaleIntercept=-50)
    found = read(tmp_path / "a.dcm", "DICOM")
    assert (found.window, found.pages) == ((-250, 34 * 80 - 250), 1)
    np.testing.assert_array_equal(found.image, np.rint(np.arange(35).reshape(5, 7) * 7.5))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"WindowCenter": 100, "WindowWidth": 401}, (-100.5, 299.5)),
        ({"WindowCenter": [100, 7], "WindowWidth": [401, 9]}, (-100.5, 299.5)),
        (
            {"WindowCenter": 100, "WindowWidth": 400, "VOILUTFunction": "LINEAR_EXACT"},
            (-100, 300),
        ),
    ],
)
def test_dicom_takes_its_own_window(
    tmp_path: Path, fields: dict[str, object], expected: tuple[float, float]
) -> None:
    write_dicom(tmp_path / "a.dcm", FRAMES, **fields)
    found = read(tmp_path / "a.dcm", "DICOM")
    assert found.window == expected
    np.testing.assert_array_equal(found.image, reading.scaled(FRAMES[0], expected))
    assert read(tmp_path / "a.dcm", "DICOM", (3, 50)).window == (3, 50)


def test_dicom_may_have_white_as_zero(tmp_path: Path) -> None:
    write_dicom(tmp_path / "a.dcm", np.uint8(FRAMES[:1] % 251))
    plain = np.asarray(read(tmp_path / "a.dcm", "DICOM").image)
    np.testing.assert_array_equal(plain, np.uint8(FRAMES[0] % 251))  # 8 bits are not stretched
    fields = {"PhotometricInterpretation": "MONOCHROME1"}
    write_dicom(tmp_path / "a.dcm", np.uint8(FRAMES[:1] % 251), **fields)
    np.testing.assert_array_equal(read(tmp_path / "a.dcm", "DICOM").image, 255 - plain)


def test_dicom_in_colour(tmp_path: Path) -> None:
    values = np.asarray(noise(6, 8))
    fields = {"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB", "PlanarConfiguration": 0}
    frame = np.zeros((1, 6, 8), np.uint8)
    write_dicom(tmp_path / "a.dcm", frame, PixelData=values.tobytes(), **fields)
    np.testing.assert_array_equal(read(tmp_path / "a.dcm", "DICOM").image, values)


def test_dicom_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    path = tmp_path / "a.dcm"
    write_dicom(path, FRAMES)
    dataset = pydicom.dcmread(path)
    del dataset.Rows
    dataset.save_as(path)
    with pytest.raises(ValueError, match="it holds no image"):
        read(path, "DICOM")
    write_dicom(path, FRAMES, Rows=20000, Columns=10001)
    with pytest.raises(PIL.Image.DecompressionBombError):
        read(path, "DICOM")
    write_dicom(path, FRAMES)
    dataset = pydicom.dcmread(path)
    dataset.PixelData = pydicom.encaps.encapsulate([bytes(10)])
    dataset["PixelData"].is_undefined_length = True
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.HTJ2KLossless
    dataset.save_as(path)
    with pytest.raises(RuntimeError) as error:
        read(path, "DICOM")
    assert reading.failure(error.value, "DICOM").startswith("cannot be read as DICOM: ")


def test_sample_profile_is_one() -> None:
    name = ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(io.BytesIO(DISPLAY_P3)))
    assert name.strip() == "test"


def test_animations_and_small_first_frames_are_not_decoded(tmp_path: Path) -> None:
    frame = PIL.Image.new("RGB", (17, 13), "red")
    for name, options in (("still", {}), ("moving", {"append_images": [frame.rotate(180), frame]})):
        path = tmp_path / f"{name}.webp"
        PIL.Image.effect_noise((17, 13), 90).convert("RGB").save(path, save_all=True, **options)
        head = image_formats.read_head(path)
        assert reading.is_decoded(path, "WebP", head, None) == (name == "still", False)
    path = tmp_path / "a.gif"
    frame.save(path)
    assert reading.is_decoded(path, "GIF", image_formats.read_head(path), None) == (True, False)
    content = bytearray(path.read_bytes())
    content[6] += 1  # a screen wider than the frame
    path.write_bytes(content)
    assert reading.is_decoded(path, "GIF", image_formats.read_head(path), None) == (False, False)


def test_a_png_whose_size_does_not_come_first_is_not_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    PIL.Image.new("RGB", (17, 13), "red").save(path)
    whole = path.read_bytes()
    assert reading.is_decoded(path, "PNG", image_formats.read_head(path), None) == (True, False)
    content = b"noSe" + bytes(8)
    chunk = b"\0\0\0\x08" + content + zlib.crc32(content).to_bytes(4, "big")
    path.write_bytes(whole[:8] + chunk + whole[8:])
    assert reading.is_decoded(path, "PNG", image_formats.read_head(path), None) == (False, False)
