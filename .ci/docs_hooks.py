"""Pages of the documentation site that are generated from the package.

MkDocs calls the functions `on_*` (`hooks` in mkdocs.yml).
"""

from __future__ import annotations

import io
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# Files outside of docs/ that are pages of the site.
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "notebooks/*.ipynb", "benchmarks/results/*.md")
RATES = ROOT / "benchmarks" / "results" / "peers_2026-11-23.json"
TYPER = ("-m", "typer", "keras_vit.cli.app", "utils", "docs", "--name", "keras-vit")
TABLES = str(ROOT / ".ci" / "site_tables.py")
# The text and the target of a link or an image.
_LINK = re.compile(r"(!?)\[([^\]\[`]*(?:`[^`]*`[^\]\[`]*)*)\]\(([^)\s]+)\)")


@event_priority(100)  # before mkdocs-jupyter, which converts the notebooks
def on_files(files: Files, config: Any) -> Files:
    """Adds the generated pages and the pages outside of docs/."""
    readme = (ROOT / "README.md").read_text("utf-8")
    generated = {
        "index.md": readme.replace("](docs/", "]("),
        "commands.md": _run(*TYPER),
        "settings.md": _settings(),
    }
    pages = re.findall(r"api/([\w.]+)\.md", str(config["nav"]))
    packages = [name if name == "keras_vit" else f"keras_vit.{name}" for name in pages]
    for package, names in json.loads(_run(TABLES, "summaries", *packages)).items():
        generated[f"api/{package.removeprefix('keras_vit.')}.md"] = _reference(package, names)
    generated["models.md"], generated["images/models.svg"] = _models()
    for uri, content in generated.items():
        files.append(File.generated(config, uri, content=content))
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            name = str(path.relative_to(ROOT))
            directories = config["site_dir"], config["use_directory_urls"]
            files.append(File(name, str(ROOT), *directories))
    return files


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Adds links to a notebook: to the file, and to Colab, which opens the file."""
    path = Path(page.file.src_uri)
    if path.suffix != ".ipynb":
        return html
    repository = (config["repo_url"] or "").removeprefix("https://github.com/").strip("/")
    colab = "https://colab.research.google.com/"
    colab += f"github/{repository}/blob/main/{path.as_posix()}" if repository else "#upload=true"
    buttons = (("Download", path.name), ("Open in Colab", colab))
    links = (f'<a class="md-button" href="{url}">{text}</a>' for text, url in buttons)
    return f"<p>{' '.join(links)}</p>\n{html}"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Adapts relative links to the site; links to files that it does not contain become text."""
    if page.file.src_uri.startswith(("benchmarks/", "decisions/")):
        page.meta["search"] = {"exclude": True}  # figures and history, which the guides link to
    elif page.file.src_uri.startswith(("api/", "CHANGELOG", "CONTRIBUTING")):
        page.meta["search"] = {"boost": 0.1}  # below the guides

    def adapted(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        path, hash_, anchor = target.partition("#")
        if not path or ":" in target:
            return match[0]
        folder = os.path.dirname(page.file.src_uri)
        found = os.path.normpath(os.path.join(folder, path))
        found = re.sub(r"^(\.\./)*(docs/)?", "", found)
        if files.get_file_from_path(found) is None:
            return match[0] if image else text
        return f"{image}[{text}]({os.path.relpath(found, folder or '.')}{hash_}{anchor})"

    return _LINK.sub(adapted, markdown)


def _run(*arguments: str) -> str:
    """Returns the output of Python in the root folder."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments], stdout=subprocess.PIPE, text=True, env=environment, check=True
    ).stdout


def _models() -> tuple[str, str]:
    """Returns the page of the constructors, and its figure."""
    rates: dict[tuple[str, str], str] = {}
    for race in json.loads(RATES.read_text("utf-8")):
        if (race["task"], race["image_size"], race["batch"]) == ("inference", 224, 8):
            seconds = statistics.median(race["found"]["keras_vit-optimized"]["steps"])
            rates[race["size"], race["precision"]] = f"{8 / seconds:.0f}"
    columns = (
        *("constructor", "pixels", "parameters", "GFLOPs"),
        *("weights", "best top-1 (%)", "license", "images/s float32", "images/s bfloat16"),
    )
    lines = [
        "# Models\n",
        "Which model? `ViTTi16` for phones and CPUs, and to try things; `ViTS16` where a CPU has "
        "to be more accurate; `ViTB16` where accuracy matters most. Smaller patches (`ViTS8`) cost "
        "four times as much and show smaller things. The hybrids (`ViTR...`) begin with a ResNet, "
        "and `ViTMicro4` is for images of 16 to 64 pixels. The others are "
        "[foundation backbones](backbones.md). All train in the same way: begin with the "
        "smallest, and compare by `keras-vit compare`.\n",
        "![Top-1 accuracy against images per second](images/models.svg)\n",
        "The figure: highest published top-1 at 224 pixels, and images per second as below.\n",
        "Parameters and operations with 1,000 classes, for one image of the size in the table; a "
        "multiplication and an addition are two operations, so GFLOPs are twice timm's GMACs. "
        "Files: four bytes per parameter in float32, about one in TFLite with `dynamic_range`. "
        "Top-1: highest published accuracy on ImageNet-1k, of the named weights, as stated by "
        "their authors; see [all weights](weights.md). Images/s: `optimize_for_inference` at "
        "batch size 8 on two cores of an Intel Xeon with AMX "
        f"([measured](benchmarks/results/{RATES.stem}.md)); empty cells: not run.\n",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    points: dict[str, list[tuple[str, float, float]]] = {"float32": [], "bfloat16": []}
    for name, size, parameters, flops, weights, best, top1 in json.loads(_run(TABLES, "models")):
        short = {"ViTTi16": "Ti", "ViTS16": "S", "ViTB16": "B"}.get(name, "")
        cells = [f"`{name}`", " x ".join(map(str, size)), f"{parameters / 1e6:.1f} M"]
        cells += [f"{flops / 1e9:.1f}", str(weights)]
        cells += [f"{best[1]:g} (`{best[0]}`)", best[2]] if best else ["", ""]
        cells += [rates.get((short, precision), "") for precision in ("float32", "bfloat16")]
        lines.append(f"| {' | '.join(cells)} |")
        for precision, drawn in points.items():
            if (short, precision) in rates:
                drawn.append((name, float(rates[short, precision]), top1))
    return "\n".join(lines) + "\n", _figure(points)


def _figure(points: dict[str, list[tuple[str, float, float]]]) -> str:
    """Returns a drawing of accuracy against speed, with a line for each precision, as SVG."""
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axes = figure.subplots()
    for precision, found in points.items():
        names, speeds, accuracies = zip(*found, strict=True)
        axes.plot(speeds, accuracies, "o-", label=precision)
        for name, speed, accuracy in zip(names, speeds, accuracies, strict=True):
            axes.annotate(name, (speed, accuracy), (6, 4), textcoords="offset points", fontsize=8)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks([10, 20, 50, 100], ["10", "20", "50", "100"])
    axes.set_xlabel("images per second on two CPU cores with AMX")
    axes.set_ylabel("top-1 on ImageNet-1k in %")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    drawing = io.StringIO()
    figure.savefig(drawing, format="svg")
    return drawing.getvalue()


def _settings() -> str:
    """Returns the page of the values that `--set` changes."""
    lines = [
        "# Settings\n",
        "All values of a recipe, which `keras-vit train --set NAME=VALUE` changes, as in `--set "
        "mixup=0.2` or `--set 'trainable=[head/*]'`. Defaults are those of `Recipe()`; `keras-vit "
        "recipes NAME` prints the values of a [recipe](recipes.md).\n",
        '<div class="names" markdown>\n',
        "| name | default | |",
        "|---|---|---|",
    ]
    for name, default, text in json.loads(_run(TABLES, "settings")):
        lines.append(f"| `{name}` | `{json.dumps(default)}` | {text} |")
    return "\n".join(lines) + "\n\n</div>\n"


def _reference(package: str, names: dict[str, str]) -> str:
    """Returns the page of a package: a table of the names that it exports, and their docstrings."""
    folder = ROOT.joinpath(*package.split("."))
    pages = {path.parent.name for path in folder.glob("*/__init__.py")}  # sub-packages
    rows, entries, constructors = ["| name | |", "|---|---|"], [], []
    for name, summary in names.items():
        if name in pages or name == "__version__":
            continue
        if re.fullmatch(r"ViT(?!Config)\w+", name):
            constructors.append(f"`{name}`")
            continue
        rows.append(f"| [`{name}`][{package}.{name}] | {summary} |")
        entries.append(f"::: {package}.{name}\n")
    if constructors:
        rows.append(
            "| [constructors](#constructors) | Vision Transformers of all published sizes. |"
        )
        entries.append(
            f"## Constructors\n\n{', '.join(constructors)}: see [all sizes](../models.md). They "
            "have the same arguments:\n\n::: keras_vit.zoo.Constructor.__call__\n"
            "    options: { show_root_heading: false }\n"
        )
    return f"# {package}\n\n" + "\n".join([*rows, "", *entries])
