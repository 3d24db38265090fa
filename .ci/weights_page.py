"""Generator of `docs/weights.md`: run `python .ci/weights_page.py > docs/weights.md`."""

from __future__ import annotations

from collections.abc import Iterable

from keras_vit.weights import list_weights
from keras_vit.weights.registry import PublishedWeights

_HEAD = """\
<!-- Written by `python .ci/weights_page.py` from assets/weights.csv. -->

# Published weights

{count} files for {models} models. Give a name of the first column, or one of those under "also
called", to the constructor:

```python
model = keras_vit.ViTB16(weights="augreg_in21k_ft_in1k")
```

`weights="imagenet"` is the usual choice for the 1000 classes of ImageNet-1k. The name of the file
itself works too, with as much of its URL as makes it unique: `weights="sam/ViT-B_16"`.

The file is downloaded once and verified: by its SHA-256 where one was published, and otherwise by
the checks that its name, its server and its content allow. {on_branch} files are on a branch of the
Hugging Face hub (`/resolve/main/`), which its owner may change: they must have the SHA-256 that the
hub states in `X-Linked-Etag` at the time of the download. Without this header nothing is
downloaded; a mirror must pass it on if the hub itself cannot be reached. The SHA-256 and the commit
are stored beside the file, which is then used offline, also after the branch has changed; delete it
to download the new one. A file is reported as unverified if its publisher states neither a SHA-256
nor an MD5.

A name reads `[who repacked it_]recipe_data[_ft_data][_pixels]`. Nothing stands before the recipe
where the file is its authors' own; `jx` and `timm` are the earlier and the present files of PyTorch
Image Models, `hf` those of transformers, `bv` those of big_vision. Names of
[foundation backbones](backbones.md) are the tags of PyTorch Image Models, whose files they are.
Reading a `.pth` or `.bin` file
takes PyTorch; `.npz` and `.safetensors` files take nothing more. Sizes, hashes and accuracies are
as others published them; an empty cell means that nothing was found.

Numbers in brackets are the sources at the end: of the row, and of the accuracy.
"""


def markdown() -> str:
    """Returns the content of `docs/weights.md`, the page of published weights."""
    rows = list_weights()
    models = list(dict.fromkeys(row.model for row in rows))
    cited = (text for row in rows for text in (row.source, row.top1_source) if text)
    numbers = {text: number for number, text in enumerate(dict.fromkeys(cited), start=1)}
    on_branch = sum("/resolve/main/" in row.urls[0] for row in rows)
    parts = [_HEAD.format(count=len(rows), models=len(models), on_branch=on_branch)]
    for model in models:
        cells = [_cells(row, numbers) for row in list_weights(model)]
        lines = [_line(cells[0]), _line("---" for _ in cells[0])]
        lines += [_line(row.values()) for row in cells]
        parts.append(f"## {model}\n\n" + "\n".join(lines) + "\n")
    sources = "\n".join(f"{number}. {text}" for text, number in numbers.items())
    return "\n".join([*parts, f"## Sources\n\n{sources}\n"])


def _cells(row: PublishedWeights, numbers: dict[str, int]) -> dict[str, str]:
    url = row.urls[0]
    accuracy = "" if row.top1 is None else f"{row.top1:g} [{numbers[row.top1_source]}]"
    return {
        "name": f"`{row.name}`",
        "pixels": str(row.image_size),
        "top-1 (%)": accuracy,
        "MiB": str(row.mebibytes or ""),
        "license": row.license,
        "classes": str(row.classes or ""),
        "source": f"[{numbers[row.source]}]",
        "also called": ", ".join(f"`{alias}`" for alias in row.aliases),
        "note": row.note,
        "file": f"[{url.rpartition('/')[2]}]({url})",
    }


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(markdown(), end="")
