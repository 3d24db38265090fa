"""Conversion of an image folder into a copy that TensorFlow can decode."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import track

from keras_vit import arguments, output_folder
from keras_vit.files import naming_full_disk, read_object, write_json
from keras_vit.image_conversion import copying, workers

_MARKER, _LOCK = f"{copying.PREFIX}.json", f"{copying.PREFIX}.lock"
_WRITTEN = f"{copying.PREFIX}.written.json"  # modification times of files when written, in ns
_EXTRAS = {"HEIC": ("pillow_heif", "formats"), "DICOM": ("pydicom", "dicom")}  # module, extra


@dataclasses.dataclass(frozen=True)
class Conversion:
    """Result of converting a folder of images.

    Args:
        counts: Number of files by outcome.
        failed: Name and reason of each file that is missing in the new folder.

    Examples:
        >>> print(Conversion({"Converted from HEIC": 2, "Copied images": 3}).text())
        Converted from HEIC: 2
        Copied images: 3
    """

    counts: Mapping[str, int]
    failed: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        """Returns the result as text, listing at most twenty failures."""
        lines = [f"{outcome}: {number}" for outcome, number in sorted(self.counts.items())]
        if self.failed:
            failed = [f"{name}: {reason}" for name, reason in self.failed]
            lines.append(arguments.listed(f"Not converted: {len(failed)}", failed))
        return os.fsencode("\n".join(lines)).decode(errors="replace")


def convert_images(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    format: str = "jpg",
    max_side: int | None = None,
    window: tuple[float, float] | None = None,
    processes: int | None = None,
    progress: bool = True,
) -> Conversion:
    """Copies a folder, converting the images that this package's decoders cannot read.

    Decodable images are copied byte for byte, except where colors would be wrong (CMYK, a color
    profile other than sRGB, a palette in BMP) or 16 bits of a PNG would be cut to 8. All other
    images that Pillow, pillow-heif (extra `formats`) or pydicom (extra `dicom`) reads are written
    upright, in sRGB, without transparency. File names in `labels.csv` and other tables (CSV, TSV,
    JSON Lines) are updated. The source is never changed, and an interrupted run resumes. Files that
    were changed in `destination` after they were written are kept.

    Args:
        source: The folder to copy.
        destination: A new or empty folder, or the folder of an interrupted run. Waits while another
            process writes to the folder.
        format: Format of the converted images: `"jpg"` (quality 95, color at full resolution) or
            `"png"`.
        max_side: Maximum side in pixels; larger images are shrunk and converted, even if readable.
        window: Values mapped to 0 and 255 in images of more than 8 bits. By default the window of
            a DICOM file, and the lowest and highest value of each other image. RGB is cut to 8 bits
            before, and its values are the upper bytes times 257.
        processes: Number of processes; by default the number of processor cores. With 1, no other
            process is started.
        progress: Whether to show a progress bar on the terminal.

    Returns:
        The number of files by outcome, and the failures.

    Raises:
        ValueError: If an argument is invalid, or `destination` contains other files.
        ImportError: If there are HEIC or DICOM files and their extra is not installed.
        RuntimeError: If the system killed a process.
        OSError: If `destination` cannot be written.

    Examples:
        >>> import tempfile
        >>> import PIL.Image
        >>> source, destination = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
        >>> PIL.Image.new("RGB", (5, 7)).save(source / "a.tif")
        >>> convert_images(source, destination, processes=1, progress=False).counts
        Counter({'Converted from TIFF': 1})
        >>> (destination / "a.jpg").is_file()
        True
    """
    arguments.one_of("format", format, tuple(copying.FORMATS))
    processes = workers.check_options(processes, max_side)
    if window is not None and not (len(window) == 2 and window[0] < window[1]):
        raise ValueError(
            "`window` must be two numbers, the smaller number first. Received: "
            f"window={','.join(map(str, window))}"
        )
    source, destination = Path(source).resolve(), Path(destination).resolve()
    options = {"source": str(source), "format": format, "max_side": max_side, "window": window}
    marker_text = json.dumps(options, indent=2) + "\n"
    _check_folders(source, destination, marker_text)
    # A disabled progress bar prints a line in rich 13.
    bar = partial(track, console=Console(stderr=True)) if progress else lambda results, *_: results
    files = list(bar(copying.walk(source, "", {source, destination}, max_side), "Scanning files"))
    _check_extras({file.format for file in files})
    copying.set_targets(files, format)
    destination.mkdir(parents=True, exist_ok=True)
    message = f"destination={destination}, which is in use by another process"
    with (
        naming_full_disk(destination),
        output_folder.exclusive_lock(destination / _LOCK, lambda: message),
        workers.pool(processes) as parallel_map,
    ):
        copying.remove_unfinished(destination)
        temporary = destination / f"{copying.PREFIX}.tmp-marker"
        temporary.write_text(marker_text, encoding="utf-8")
        temporary.replace(destination / _MARKER)
        written = read_object(destination / _WRITTEN)
        for file in files:
            file.written = written.get(file.target)
            if file.outcome == copying.FOLDER:
                (destination / file.target).mkdir(parents=True, exist_ok=True)
        results = [file for file in files if file.outcome or file.failure]
        tables = [file for file in files if file.is_table]
        jobs = [file for file in files if not (file.outcome or file.failure or file.is_table)]
        write = partial(copying.write_image, source, destination, options)
        try:
            results += bar(parallel_map(partial(write, {}), jobs), "Converting images", len(jobs))
            renames = {
                file.name: os.path.basename(file.target) for file in results if not file.failure
            }
            results += map(partial(write, renames), tables)
        finally:
            written |= {file.target: file.written for file in results if file.written is not None}
            write_json(destination / _WRITTEN, dict(sorted(written.items())))
    counts = Counter(file.outcome for file in results if file.outcome)
    counts.update({"Pages left out": sum(file.pages for file in results)})
    failed = sorted((file.name, file.failure) for file in results if file.failure)
    return Conversion(+counts, tuple(failed))


def _check_folders(source: Path, destination: Path, marker: str) -> None:
    if not source.is_dir():
        raise ValueError(f"`source` must be an existing folder. Received: {source}")
    if source.is_relative_to(destination) or destination.is_relative_to(source):
        raise ValueError(
            f"`source` and `destination` must not contain each other. Received: source={source}, "
            f"destination={destination}"
        )
    marker_path = destination / _MARKER
    if marker_path.is_file() and marker_path.read_text(encoding="utf-8") == marker:
        return
    content = destination.iterdir() if destination.is_dir() else [destination]
    if destination.exists() and any(not path.name.startswith(copying.PREFIX) for path in content):
        raise ValueError(
            "`destination` must be a new or empty folder, or the output of an earlier "
            f"conversion of the same source with the same options. Received: {destination}"
        )


def _check_extras(formats: set[str | None]) -> None:
    for format, (module, extra) in _EXTRAS.items():
        if format in formats:
            reason = f"Reading {format} files needs a package that is not installed"
            arguments.require_package(module, extra, reason)
