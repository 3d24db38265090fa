"""Base class of tasks whose targets are masks or boxes, with image sizes and pictures."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import PIL.Image

from keras_vit import data, files
from keras_vit.models import preprocessing_of
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import RunConfig
from keras_vit.runs.run_folder import RunFolder
from keras_vit.storage.paths import StoredFile
from keras_vit.tasks.task import Details, Evaluation, Predictions, Table, Task, output_batches
from keras_vit.visualization.drawing import save_figure, shorten, show, tiles

SHOWN = 8  # images
_MAX_NAME = 150  # bytes of a picture's name; file systems allow 255 with all endings
_MAX_SCORE_LOSS = 0.005  # by quantization or reduced precision


@dataclasses.dataclass(frozen=True, eq=False)
class DenseDetails(Details):
    """Detailed evaluation: scores and the worst images.

    Args:
        scores: Scores of each class.
        pictures: The worst images, with their targets and with the predictions, and their names.
    """

    pictures: Sequence[tuple[Sequence[np.ndarray], str]]


class DenseTask(Task):
    """Base class of the tasks; they evaluate at the images' original size."""

    report_kind: ClassVar[Any]
    details_kind: ClassVar[type[DenseDetails]]
    # File in the folder of a run that shows the targets of some held-out images.
    targets_file: ClassVar[str]
    # Patterns of layers that start from random weights; they are trained, whatever is frozen.
    new_layers: ClassVar[tuple[str, ...]] = ()
    config: RunConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        if config and "*" not in config.recipe.trainable:
            patterns = dict.fromkeys((*config.recipe.trainable, *self.new_layers))
            recipe = config.recipe.replace(trainable=tuple(patterns))
            self.config = dataclasses.replace(config, recipe=recipe)

    def target(self, examples: data.Examples, index: int) -> Any:
        """Returns the target of an image, as `TargetKind.loaded` does for all images."""
        return examples.targets[index]

    def pair(self, target: Any, output: np.ndarray, preprocessing: Preprocessing) -> tuple:
        """Returns an image's target and its prediction from the output, at its original size."""
        raise NotImplementedError

    def measure(self, pairs: Iterable[tuple], channels: int) -> float:
        """Returns the score of pairs, given the number of channels of the network's output."""
        raise NotImplementedError

    def agree(self, found: np.ndarray, expected: np.ndarray, close: float) -> np.ndarray:
        """Returns whether outputs in float32 are equal for each image (N,), bool."""
        raise NotImplementedError

    def draw_target(self, image: np.ndarray, target: Any, names: Sequence[str]) -> np.ndarray:
        """Returns an image with its target on it."""
        raise NotImplementedError

    def draw_found(self, image: np.ndarray, found: Any, names: Sequence[str]) -> np.ndarray:
        """Returns an image with its prediction on it; by default drawn as a target."""
        return self.draw_target(image, found, names)

    def figure(
        self, drawn: Sequence[np.ndarray], names: Sequence[str], titles: Sequence[str] | None = None
    ) -> Any:
        """Returns a figure of images from `draw_target` and `draw_found`."""
        return sheet(drawn, titles)

    def draw_batch(self, images: Any, targets: Any, names: Sequence[str], path: Path) -> None:
        pairs = zip(images, targets, strict=True)
        drawn = [self.draw_target(image, np.asarray(each), names) for image, each in pairs]
        save_figure(self.figure(drawn, names), path)

    def start_run(self, run: RunFolder, examples: data.Examples, validation: data.Examples) -> None:
        drawn = evenly_spaced(validation)
        targets = map(drawn.kind.reader(drawn), range(len(drawn)))
        path = run.path / self.targets_file
        self.draw_batch(upright_pixels(drawn), targets, drawn.class_names, path)

    def pairs(self, model: keras.Model, examples: data.Examples, **options: Any) -> Iterator[tuple]:
        """Yields the `pair` of each image; the options are those of `output_batches`."""
        network, preprocessing = self.prediction_network(model)
        for indices, outputs in output_batches(network, preprocessing, examples, **options):
            for index, output in zip(indices, outputs, strict=True):
                yield self.pair(self.target(examples, index), output, preprocessing)

    def evaluate(self, model: keras.Model, examples: data.Examples, **options: Any) -> Evaluation:
        """Evaluates a trained model; computes the worst images again, instead of keeping all."""
        examples = examples.with_classes(preprocessing_of(model).class_names)
        report = self.report_kind.of(examples.class_names, self.pairs(model, examples, **options))
        worst = examples.subset(report.worst[:SHOWN])
        return Evaluation(report, (worst, list(self.pairs(model, worst))))

    def details(
        self, model: keras.Model, examples: data.Examples, evaluation: Evaluation
    ) -> DenseDetails:
        return self.details_kind(evaluation.result, self._pictures(evaluation))

    def draw_examples(
        self, examples: data.Examples, evaluation: Evaluation, folder: Path
    ) -> dict[str, Path]:
        pictures, (worst, _) = self._pictures(evaluation), evaluation.found
        drawn = [image for images, _ in pictures for image in images]
        titles = [title for _, name in pictures for title in (Path(name).name, "prediction")]
        figure = self.figure(drawn, worst.class_names, titles)
        return {"worst": save_figure(figure, folder / "worst.png")}

    def _pictures(self, evaluation: Evaluation) -> list[tuple[tuple[np.ndarray, np.ndarray], str]]:
        """Returns the worst images, each with its target and its prediction, and its name."""
        worst, pairs = evaluation.found
        names, images = worst.class_names, upright_pixels(worst)
        drawn = (
            (self.draw_target(image, target, names), self.draw_found(image, predicted, names))
            for image, (target, predicted) in zip(images, pairs, strict=True)
        )
        return list(zip(drawn, worst.names, strict=True))

    def agreement(
        self, found: np.ndarray, expected: Predictions, close: float
    ) -> tuple[np.ndarray, float]:
        """Compares an exported file with the Keras model (see `Task.agreement`).

        In float32, images agree by `agree`; smaller files agree on all images or on none, by
        `measure`, which is returned as accuracy.
        """

        def score_of(outputs: np.ndarray) -> float:
            both = zip(expected.targets, outputs, strict=True)
            pairs = (self.pair(*each, expected.preprocessing) for each in both)
            return self.measure(pairs, outputs.shape[-1])

        score = score_of(found)
        if close:
            return self.agree(found, expected.outputs, close), score
        if np.isnan(score):  # without objects
            return super().agreement(found, expected, close)
        agree = abs(score_of(expected.outputs) - score) <= _MAX_SCORE_LOSS
        return np.full(len(found), agree), score


class PictureTable(Table):
    """Table of predictions that also writes pictures of them."""

    _last: tuple[Any, Any] = None, None  # the last image and its pixels, for rows and pictures

    def pixels_of(self, file: Any, preprocessing: Preprocessing) -> np.ndarray:
        """Returns the pixels of an image, a path or stored file (H, W, C), in [0, 255]."""
        if file is not self._last[0]:
            content = file.read() if isinstance(file, StoredFile) else files.read_file("file", file)
            self._last = file, data.decode(content, preprocessing).numpy()
        return self._last[1]

    def pictures(self, file: Any, found: Any) -> dict[str, PIL.Image.Image]:
        """Returns the pictures of a readable image, by the end of their names."""
        raise NotImplementedError

    def write_pictures(self, folder: Path, number: int, file: Any, found: Any) -> None:
        """Writes the pictures of an image, numbered and named as its path or stored file."""
        name = os.fsencode(Path(str(file)).stem)[:_MAX_NAME].decode(errors="ignore")
        stem = f"{number:05d}_{name}"
        for end, picture in (self.pictures(file, found) if found.ok else {}).items():
            with files.atomic_path(folder / f"{stem}{end}") as temporary:
                picture.save(temporary)


def with_image_size(
    config: RunConfig,
    sides: Callable[[], Sequence[Any]],
    largest: int,
    multiples: Sequence[int],
) -> RunConfig:
    """Returns a configuration that resizes whole images, by default to their median size.

    Args:
        config: The configuration.
        sides: Function that returns the heights and widths of some images, (N, 2).
        largest: Longer side of the default size.
        multiples: Numbers of pixels of which the default height and width are multiples.
    """
    recipe = config.recipe.replace(resize=config.recipe.resize or "squash")
    if recipe.image_size is None:
        median = np.median(sides(), axis=0)
        median *= min(1.0, largest / median.max())
        num_multiples = np.maximum(np.round(median / multiples), 1)
        size = tuple((num_multiples * multiples).astype(int).tolist())
        recipe = recipe.replace(image_size=size)
        print(f"Image size: {size[0]} x {size[1]} (height x width); see --image-size.")
    return dataclasses.replace(config, recipe=recipe)


def sheet(
    images: Sequence[np.ndarray], titles: Sequence[str] | None = None, margin: float = 0.0
) -> Any:
    """Draws images, at most four in a row, with a lower margin in inches; returns the figure."""
    columns = min(4, len(images))
    rows = -(-len(images) // columns)
    height = 3.0 * np.median([image.shape[0] / image.shape[1] for image in images])
    figure, grid = tiles(rows, columns, 3.0 * columns, (height + 0.2) * rows + margin)
    for axes, image, title in zip(grid.ravel(), images, titles or [""] * len(images), strict=False):
        show(axes, image)
        axes.set_title(shorten(title), fontsize=7)
    return figure


def score_cells(rows: Sequence[Any]) -> list[list[str]]:
    """Returns the cells of a table: name, scores and count of each class."""
    return [[shorten(n), *(f"{score:.3f}" for score in s), str(count)] for n, *s, count in rows]


def json_rows(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Returns rows as dictionaries, with None for NaN."""
    return [{k: None if v != v else v for k, v in row._asdict().items()} for row in rows]


def evenly_spaced(examples: data.Examples, number: int = SHOWN) -> data.Examples:
    """Returns a few of the images, evenly spaced."""
    return examples.subset(np.unique(np.linspace(0, len(examples) - 1, number).astype(int)))


def upright_pixels(examples: data.Examples) -> list[np.ndarray]:
    """Returns the upright pixels of images, each (H, W, C), in [0, 255]."""
    images = (data.decode(examples.read(i), Preprocessing()) for i in range(len(examples)))
    return [image.numpy() for image in images]
