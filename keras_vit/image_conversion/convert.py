"""Copies a folder so that TensorFlow decodes every image in it, without TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import filelock
from rich.console import Console
from rich.progress import track

from keras_vit import checks
from keras_vit.image_conversion import copying, reading, workers

_MARKER, _LOCK = f"{copying.OURS}.json", f"{copying.OURS}.lock"
_LISTED = 20


@dataclasses.dataclass(frozen=True)
class Conversion:
    """What became of the files of a folder.

    Args:
        converted: Format -> number of images that were converted.
        copied: Number of images that were copied byte for byte.
        others: Number of other files that were copied, tables with new names included.
        present: Number of files that an earlier run had finished.
        special: Number of pipes, sockets and devices, which were skipped.
        failed: Name and reason for each file that is missing in the new folder.
        pages: Number of pages and frames, other than the first, that were left out.
        windows: Lowest and highest value taken from each image of more than 8 bits.
        bad_profiles: Names of images whose damaged colour profile was ignored.

    Example:
        >>> print(Conversion({"HEIC": 2}, copied=3).text())
        Converted: 2 HEIC
        Copied: 3 images, 0 other files
    """

    converted: Mapping[str, int]
    copied: int = 0
    others: int = 0
    present: int = 0
    special: int = 0
    failed: tuple[tuple[str, str], ...] = ()
    pages: int = 0
    windows: tuple[tuple[float, float], ...] = ()
    bad_profiles: tuple[str, ...] = ()

    def text(self) -> str:
        """Returns a report to print, of at most twenty names in each part."""
        kinds = [f"{number} {kind}" for kind, number in sorted(self.converted.items())]
        lines = [f"Converted: {', '.join(kinds) or 'no image'}"]
        lines.append(f"Copied: {self.copied} images, {self.others} other files")
        if self.present:
            lines.append(f"There from an earlier run: {self.present} files")
        if self.windows:
            ends = [f"{low:g},{high:g}" for low, high in (min(self.windows), max(self.windows))]
            used = f"window {ends[0]}" if ends[0] == ends[1] else f"windows {' to '.join(ends)}"
            lines.append(f"More than 8 bits: {len(self.windows)} images, {used}")
        if self.pages:
            lines.append(f"Left out: {self.pages} pages or frames after the first of their file")
        if self.special:
            lines.append(f"Skipped: {self.special} pipes, sockets or devices")
        for title, names in (
            ("Damaged colour profiles, ignored", self.bad_profiles),
            ("Not converted", [f"{name}: {reason}" for name, reason in self.failed]),
        ):
            if names:
                lines += [f"{title} ({len(names)}):", *(f"  {name}" for name in names[:_LISTED])]
                lines += [f"  ... and {len(names) - _LISTED} more"] * (len(names) > _LISTED)
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
    """Copies a folder and converts the images that the decoders of this package cannot read.

    What they read is copied byte for byte, except where colours would be wrong (CMYK, a colour
    profile other than sRGB, a palette in BMP) or 16 bits of a PNG would be cut to 8. All else that
    Pillow, pillow-heif (extra `formats`) and pydicom (extra `dicom`) read is written upright, in
    sRGB, without transparency. `labels.csv` and other tables (CSV, TSV, JSON lines) get the new
    names. The source is never changed, and a run that was interrupted goes on.

    Args:
        source: The folder to copy.
        destination: A new or empty folder, or one that an interrupted run left.
        format: Of the converted images: `"jpg"` (quality 95, colour at full resolution) or
            `"png"`.
        max_side: Pixels; a larger image is shrunk and written anew, even if it is readable.
        window: Values that become 0 and 255 in images of more than 8 bits. By default the window
            of a DICOM file, and the lowest and highest value of each other image.
        processes: How many work; by default as many as there are processor cores. With 1, it is
            this one.
        progress: Whether to show a progress bar on the terminal.

    Returns:
        What became of the files.

    Raises:
        ValueError: If an argument is wrong or another process writes to `destination`.
        ImportError: If there are HEIC or DICOM files and the extra to read them is missing.
        RuntimeError: If the system ended a process.
        OSError: If `destination` cannot be written.

    Example:
        >>> import tempfile
        >>> import PIL.Image
        >>> source, destination = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
        >>> PIL.Image.new("RGB", (5, 7)).save(source / "a.tif")
        >>> convert_images(source, destination, processes=1, progress=False).converted
        {'TIFF': 1}
        >>> (destination / "a.jpg").is_file()
        True
    """
    options = _checked(format, max_side, window)
    processes = checks.positive_int(
        "processes", workers.cores() if processes is None else processes
    )
    source, destination = _checked_folders(Path(source), Path(destination))
    marker = json.dumps({"source": str(source), **dataclasses.asdict(options)}, indent=2) + "\n"
    _check_marker(destination, marker)
    names, folders, failed, special = copying.walk(source, destination)
    show = partial(_shown, progress=progress)
    with workers.pool(min(processes, len(names) or 1)) as run:
        inspect = partial(copying.inspected, source, max_side)
        files = list(show(run(inspect, names), "Looking at files", len(names)))
        _check_extras(files)
        destination.mkdir(parents=True, exist_ok=True)
        with _alone(destination):
            copying.remove_unfinished(destination)
            with copying.unfinished(destination / _MARKER) as temporary:
                temporary.write_text(marker, encoding="utf-8")
            for folder in folders:
                (destination / folder).mkdir(parents=True, exist_ok=True)
            targets = copying.targets(files, folders, options.format)
            jobs = {file: target for file, target in targets.items() if not file.is_table}
            outcomes = run(partial(copying.made, source, destination, options), jobs.items())
            shown = show(outcomes, "Converting images", len(jobs))
            done = dict(zip(jobs, shown, strict=True))
            renames = {
                file.name: os.path.basename(target)
                for file, target in jobs.items()
                if target != file.name and not done[file].failure
            }
            for table in targets.keys() - jobs.keys():
                copying.copy_table(
                    source / table.name, destination / table.name, table.name, renames
                )
                done[table] = copying.Outcome()
            copying.remove_unfinished(destination)  # of processes that outlived a killed run
    return _summed(done, failed, special)


def _checked(
    format: str, max_side: int | None, window: tuple[float, float] | None
) -> copying.Options:
    checks.one_of("format", format, tuple(copying.FORMATS))
    if max_side is not None:
        checks.positive_int("max_side", max_side)
    if window is not None and not (len(window) == 2 and window[0] < window[1]):
        raise ValueError(
            "`window` must be two numbers, the lower one first. Received: "
            f"window={','.join(map(str, window))}"
        )
    return copying.Options(format, max_side, window)


def _checked_folders(source: Path, destination: Path) -> tuple[Path, Path]:
    if not source.is_dir():
        raise ValueError(f"`source` must be an existing folder. Received: {source}")
    source, destination = source.resolve(), destination.resolve()
    if source.is_relative_to(destination) or destination.is_relative_to(source):
        raise ValueError(
            "`destination` must lie outside of `source`, and `source` outside of it. Received: "
            f"source={source}, destination={destination}"
        )
    return source, destination


def _check_marker(destination: Path, marker: str) -> None:
    if not destination.exists():
        return
    found = destination / _MARKER
    if destination.is_dir():
        if found.is_file():
            if found.read_text(encoding="utf-8") == marker:
                return
        elif all(path.name.startswith(copying.OURS) for path in destination.iterdir()):
            return
    raise ValueError(
        "`destination` must be new, or an empty folder, or one that was converted from the same "
        f"source with the same options. Received: {destination}"
    )


def _check_extras(files: list[copying.File]) -> None:
    for format, extra in {file.format: None for file in files}.items():
        if format and (extra := reading.missing_extra(format)):
            raise ImportError(
                f"There are {format} files, and what reads them is not installed. Install it "
                f'with\n    pip install "keras-vit-toolkit[{extra}]"'
            )


@contextlib.contextmanager
def _alone(destination: Path) -> Iterator[None]:
    lock = filelock.FileLock(destination / _LOCK)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise ValueError(
            "`destination` must not be written by two processes at once. Received: "
            f"{destination}, to which another one writes"
        ) from None
    try:
        yield
        (destination / _LOCK).unlink(missing_ok=True)
    finally:
        lock.release()


def _shown(results: Iterable, title: str, total: int, progress: bool) -> Iterable:
    # A bar that is disabled writes a line in rich 13.
    return track(results, title, total, console=Console(stderr=True)) if progress else results


def _summed(
    done: Mapping[copying.File, copying.Outcome],
    failed: list[tuple[str, str]],
    special: int,
) -> Conversion:
    new = {file: made for file, made in done.items() if not (made.present or made.failure)}
    copied = [file for file in new if not file.convert]
    failures = [(file.name, made.failure) for file, made in done.items() if made.failure]
    return Conversion(
        converted=dict(Counter(str(file.format) for file in new if file.convert)),
        copied=sum(file.format is not None for file in copied),
        others=sum(file.format is None for file in copied),
        present=sum(made.present for made in done.values()),
        special=special,
        failed=tuple(sorted([*failed, *failures])),
        pages=sum(made.pages for made in new.values()),
        windows=tuple(made.window for made in new.values() if made.window),
        bad_profiles=tuple(
            file.name for file, made in new.items() if file.bad_profile or made.bad_profile
        ),
    )
