from __future__ import annotations

import io
import struct
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
    path: Path, format: str = "TIFF", window: reading.Window = None, max_side: int = 0
) -> PIL.Image.Image:
    return reading.read_picture(path, format, window, max_side or None)[0]


def decoded(path: Path, max_side: int | None = None) -> bool:
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
    assert decoded(tmp_path / name) == expected


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.gif", "a.webp", "a.bmp"])
def test_is_decoded_looks_at_the_longer_side(tmp_path: Path, name: str) -> None:
    PIL.Image.new("RGB", (5, 7)).save(tmp_path / name)
    assert decoded(tmp_path / name, 7)
    assert not decoded(tmp_path / name, 6)


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp"])
def test_is_decoded_looks_at_the_profile(tmp_path: Path, name: str) -> None:
    for profile, expected in ((SRGB, True), (DISPLAY_P3, False), (b"no profile at all", True)):
        noise().save(tmp_path / name, icc_profile=profile)
        assert decoded(tmp_path / name) == expected
    if name != "a.webp":
        noise().convert("L").save(tmp_path / name, icc_profile=DISPLAY_P3)  # of color, on gray
        assert decoded(tmp_path / name)


def test_colors_are_converted_to_srgb(tmp_path: Path) -> None:
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
    np.testing.assert_allclose(found.getpixel((2, 3)), expected, atol=4)
    assert abs(expected - (200, 30, 40)).max() > 15
    assert not found.info.get("icc_profile")


def test_damaged_profile_is_ignored(tmp_path: Path) -> None:
    noise().save(tmp_path / "a.tif", icc_profile=DISPLAY_P3[:300])
    found = read(tmp_path / "a.tif")
    np.testing.assert_array_equal(found, noise())


def test_cmyk_is_converted(tmp_path: Path) -> None:
    PIL.Image.new("CMYK", (5, 7), (255, 0, 0, 0)).save(tmp_path / "a.jpg", quality=100)
    found = read(tmp_path / "a.jpg", "JPEG")
    assert found.mode == "RGB"
    np.testing.assert_allclose(found.getpixel((2, 3)), (0, 255, 255), atol=2)


def test_16_bit_gray_png_is_stretched_with_all_its_bits(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(deep_png(RAMP[..., 1:2]))
    expected = np.rint((RAMP[..., 1] - 56) * 255 / (4034 - 56))
    np.testing.assert_array_equal(read(tmp_path / "a.png", "PNG"), expected)


@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("kind", ["png", "tif", "big-endian tif", "deflated tif"])
def test_16_bit_rgb_is_stretched_after_it_was_cut_to_8_bits(
    tmp_path: Path, channels: int, kind: str
) -> None:
    if channels == 2 and kind != "png":
        pytest.skip("no such TIFF in Pillow")
    colors = channels if channels == 3 else channels - 1
    values = np.full((5, 7, channels), 60000)  # of transparency
    values[..., :colors] = RAMP[..., :colors] * 16
    order = ">" if kind.startswith("big") else "<"
    tiff = deep_tiff(values, 2, order, kind.startswith("deflated")) if channels > 2 else b""
    path = tmp_path / f"a.{kind[-3:]}"
    path.write_bytes(deep_png(values) if kind == "png" else tiff)
    upper = (values[..., :colors] >> 8).astype(float)
    expected = np.rint((upper - upper.min()) * 255 / np.ptp(upper))
    found = np.asarray(read(path, "PNG" if kind == "png" else "TIFF"))
    assert found.shape == (5, 7, 3)
    np.testing.assert_array_equal(found[..., :colors], expected)
    # The window counts in the values of the file, to a step of 8 bits.
    found = np.asarray(read(path, "PNG" if kind == "png" else "TIFF", (0, 65535)))
    np.testing.assert_array_equal(found[..., :colors], upper)


def test_16_bits_for_all_colors_are_not_stretched(tmp_path: Path) -> None:
    # A BMP of 5, 6 and 5 bits: one pixel of half red, padded to four bytes.
    header = struct.pack("<IiiHHIIiiII", 40, 1, 1, 1, 16, 3, 4, 0, 0, 0, 0)
    masks = struct.pack("<III", 0xF800, 0x07E0, 0x001F)
    start = struct.pack("<2sIHHI", b"BM", 70, 0, 0, 66)
    (tmp_path / "a.bmp").write_bytes(start + header + masks + struct.pack("<HH", 15 << 11, 0))
    assert not decoded(tmp_path / "a.bmp")
    assert read(tmp_path / "a.bmp", "BMP").getpixel((0, 0)) == (15 * 255 // 31, 0, 0)


@pytest.mark.parametrize(("photometric", "inverted"), [(1, False), (0, True)])
def test_16_bit_gray_tiff_may_have_white_as_zero(
    tmp_path: Path, photometric: int, inverted: bool
) -> None:
    (tmp_path / "a.tif").write_bytes(deep_tiff(RAMP[..., :1], photometric))
    found = np.asarray(read(tmp_path / "a.tif", window=(17, 4073)))
    expected = STRETCHED[..., 0]
    np.testing.assert_array_equal(255 - found if inverted else found, expected)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_32_bit_tiff_is_stretched(tmp_path: Path, dtype: type) -> None:
    values = RAMP[..., 0].astype(dtype) - 1000
    PIL.Image.fromarray(values).save(tmp_path / "a.tif")
    found = read(tmp_path / "a.tif")
    expected = np.rint((values - values.min()) * 255.0 / np.ptp(values))
    np.testing.assert_array_equal(found, expected)


def test_window_sets_what_is_black_and_white(tmp_path: Path) -> None:
    PIL.Image.fromarray(np.uint16([[0, 100, 200, 300, 65535]])).save(tmp_path / "a.png")
    found = read(tmp_path / "a.png", "PNG", (100, 300))
    assert np.asarray(found).tolist() == [[0, 0, 128, 255, 255]]


def test_stretched_survives_constant_and_missing_values() -> None:
    def stretched(values: np.ndarray, window: reading.Window = None) -> list[list[int]]:
        return np.asarray(reading._stretch(values, window)).tolist()

    assert stretched(np.uint16([[7, 7]])) == [[0, 0]]
    assert stretched(np.float32([[np.nan, 1, 3, np.inf]])) == [[0, 0, 255, 255]]
    assert stretched(np.float32([[np.nan]])) == [[0]]
    assert stretched(np.uint8([[3, 5]])) == [[3, 5]]


def test_max_side_shrinks_only(tmp_path: Path) -> None:
    noise(13, 17).save(tmp_path / "a.tif")
    assert read(tmp_path / "a.tif", max_side=11).size == (11, 8)
    assert read(tmp_path / "a.tif", max_side=19).size == (17, 13)


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
    found = read(tmp_path / name, format)
    assert found.size == (32, 24)
    assert not found.getexif()
    pixels = np.asarray(found).astype(int)
    assert pixels[4, 5, 0] > 200 > 60 > pixels[4, 5, 1]
    assert pixels[4, 27, 1] > 200 > 60 > pixels[4, 27, 0]
    assert pixels[20, 5].max() < 60


def test_pages_after_the_first_are_counted(tmp_path: Path) -> None:
    noise(5, 7).save(tmp_path / "a.tif", save_all=True, append_images=[noise(), noise()])
    image, pages = reading.read_picture(tmp_path / "a.tif", "TIFF", None, None)
    assert (pages, image.size) == (2, (7, 5))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
def test_modes_become_gray_or_rgb(tmp_path: Path, mode: str) -> None:
    noise().convert(mode).save(tmp_path / "a.tif")
    found = read(tmp_path / "a.tif")
    assert found.mode == ("L" if mode in ("1", "L", "LA") else "RGB")


def test_image_of_too_many_pixels_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.ppm").write_bytes(b"P6\n20000 10001\n255\n")
    with pytest.raises(PIL.Image.DecompressionBombError):
        read(tmp_path / "a.ppm", "Netpbm")


def test_jpegs_above_the_limit_of_pillow_are_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    noise().save(path)
    content = path.read_bytes()
    start = content.index(b"\xff\xc0") + 5
    path.write_bytes(content[:start] + struct.pack(">HH", 12240, 16320) + content[start + 4 :])
    assert decoded(path)
    assert not decoded(path, 16319)
    path.write_bytes(content[:start] + struct.pack(">HH", 65000, 65000) + content[start + 4 :])
    with pytest.raises(PIL.Image.DecompressionBombError):
        decoded(path)


def test_ghostscript_is_never_started(tmp_path: Path) -> None:
    noise().save(tmp_path / "a.eps")
    (tmp_path / "a.eps").rename(tmp_path / "a.tga")
    with pytest.raises(PIL.UnidentifiedImageError):
        read(tmp_path / "a.tga", "TGA")


def write_dicom(path: Path, values: np.ndarray, **fields: object) -> None:
    """Writes frames (N, H, W), gray values of 16 or 8 bits."""
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


@pytest.mark.slow
def test_dicom_takes_the_range_of_its_first_frame(tmp_path: Path) -> None:
    write_dicom(tmp_path / "a.dcm", FRAMES, RescaleSlope=2, RescaleIntercept=-50)
    image, pages = reading.read_picture(tmp_path / "a.dcm", "DICOM", None, None)
    assert pages == 1
    np.testing.assert_array_equal(image, np.rint(np.arange(35).reshape(5, 7) * 7.5))
    # In units after rescaling: from -250 to 34 * 80 - 250.
    found = read(tmp_path / "a.dcm", "DICOM", (-250, 2 * 34 * 80 - 250))
    np.testing.assert_array_equal(found, np.rint(np.arange(35).reshape(5, 7) * 3.75))


@pytest.mark.parametrize(
    ("fields", "low", "high"),
    [
        ({"WindowCenter": 100, "WindowWidth": 401}, -100.5, 299.5),
        ({"WindowCenter": [100, 7], "WindowWidth": [401, 9]}, -100.5, 299.5),
        ({"WindowCenter": 100, "WindowWidth": 400, "VOILUTFunction": "LINEAR_EXACT"}, -100, 300),
        ({"WindowCenter": 100, "WindowWidth": None}, -100, 34 * 40 - 100),
    ],
)
def test_dicom_takes_its_own_window(
    tmp_path: Path, fields: dict[str, object], low: float, high: float
) -> None:
    write_dicom(tmp_path / "a.dcm", FRAMES, **fields)
    expected = np.clip(np.rint((FRAMES[0] - float(low)) * 255 / (high - low)), 0, 255)
    np.testing.assert_array_equal(read(tmp_path / "a.dcm", "DICOM"), expected)
    expected = np.clip(np.rint((FRAMES[0] - 3.0) * 255 / 47), 0, 255)
    np.testing.assert_array_equal(read(tmp_path / "a.dcm", "DICOM", (3, 50)), expected)


def test_dicom_window_may_be_a_sigmoid(tmp_path: Path) -> None:
    fields = {"WindowCenter": 300, "WindowWidth": 400, "VOILUTFunction": "SIGMOID"}
    write_dicom(tmp_path / "a.dcm", FRAMES, RescaleSlope=1, RescaleIntercept=0, **fields)
    expected = np.rint(255 / (1 + np.exp(-4 * (FRAMES[0] - 300.0) / 400)))
    np.testing.assert_array_equal(read(tmp_path / "a.dcm", "DICOM"), expected)


def test_dicom_may_have_white_as_zero(tmp_path: Path) -> None:
    write_dicom(tmp_path / "a.dcm", np.uint8(FRAMES[:1] % 251))
    plain = np.asarray(read(tmp_path / "a.dcm", "DICOM"))
    np.testing.assert_array_equal(plain, np.uint8(FRAMES[0] % 251))  # 8 bits are not stretched
    fields = {"PhotometricInterpretation": "MONOCHROME1"}
    write_dicom(tmp_path / "a.dcm", np.uint8(FRAMES[:1] % 251), **fields)
    np.testing.assert_array_equal(read(tmp_path / "a.dcm", "DICOM"), 255 - plain)


def test_dicom_in_color(tmp_path: Path) -> None:
    values = np.asarray(noise(6, 8))
    fields = {"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB", "PlanarConfiguration": 0}
    frame = np.zeros((1, 6, 8), np.uint8)
    write_dicom(tmp_path / "a.dcm", frame, PixelData=values.tobytes(), **fields)
    np.testing.assert_array_equal(read(tmp_path / "a.dcm", "DICOM"), values)


def test_dicom_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    path = tmp_path / "a.dcm"
    write_dicom(path, FRAMES)
    dataset = pydicom.dcmread(path)
    del dataset.Rows
    dataset.save_as(path)
    with pytest.raises(AttributeError, match="Rows"):
        read(path, "DICOM")
    write_dicom(path, FRAMES)
    dataset = pydicom.dcmread(path)
    dataset.PixelData = pydicom.encaps.encapsulate([bytes(10)])
    dataset["PixelData"].is_undefined_length = True
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.HTJ2KLossless
    dataset.save_as(path)
    with pytest.raises(RuntimeError, match="Unable to decompress"):
        read(path, "DICOM")


def test_sample_profile_is_one() -> None:
    name = ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(io.BytesIO(DISPLAY_P3)))
    assert name.strip() == "test"


def test_animations_and_small_first_frames_are_not_decoded(tmp_path: Path) -> None:
    frame = PIL.Image.new("RGB", (17, 13), "red")
    for name, options in (("still", {}), ("moving", {"append_images": [frame.rotate(180), frame]})):
        path = tmp_path / f"{name}.webp"
        PIL.Image.effect_noise((17, 13), 90).convert("RGB").save(path, save_all=True, **options)
        head = image_formats.read_head(path)
        assert reading.is_decoded(path, "WebP", head, None) == (name == "still")
    path = tmp_path / "a.gif"
    frame.save(path)
    assert reading.is_decoded(path, "GIF", image_formats.read_head(path), None)
    content = bytearray(path.read_bytes())
    content[6] += 1  # a screen wider than the frame
    path.write_bytes(content)
    assert not reading.is_decoded(path, "GIF", image_formats.read_head(path), None)


def test_a_png_whose_size_does_not_come_first_is_not_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    PIL.Image.new("RGB", (17, 13), "red").save(path)
    whole = path.read_bytes()
    assert reading.is_decoded(path, "PNG", image_formats.read_head(path), None)
    content = b"noSe" + bytes(8)
    chunk = b"\0\0\0\x08" + content + zlib.crc32(content).to_bytes(4, "big")
    path.write_bytes(whole[:8] + chunk + whole[8:])
    assert not reading.is_decoded(path, "PNG", image_formats.read_head(path), None)
