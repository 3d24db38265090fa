"""Entry point of the `keras-vit` command: makes sure that `keras_vit` is ours, then starts it.

An abandoned package on PyPI, of another author, is called keras-vit and installs a module of the
same name, `keras_vit`. Whichever is installed last overwrites the other. This module lies outside
`keras_vit`, so that it can still say so; and so that the command line, a part of `keras_vit`, can
answer `--help` and refuse a wrong option before Keras is imported, which takes seconds.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

DISTRIBUTION = "keras-vit-toolkit"
FOREIGN_DISTRIBUTION = "keras-vit"
REMEDY = f"""\
    pip uninstall {FOREIGN_DISTRIBUTION}
    pip install --force-reinstall --no-deps -e .    # in the checkout of keras_vit"""


def is_ours(init: Path) -> bool:
    """Whether `init`, the `__init__.py` of a package, is that of this distribution.

    Args:
        init: path of an `__init__.py`. Ours names the distribution and has a folder `cli`.

    Returns:
        True if it is ours.
    """
    if not init.is_file() or not init.with_name("cli").is_dir():
        return False
    return DISTRIBUTION in init.read_text(encoding="utf-8", errors="replace")


def check() -> str | None:
    """Look for the other `keras_vit`, without importing either.

    Returns:
        A warning if the other package is installed as well; None if all is well.

    Raises:
        ModuleNotFoundError: if `keras_vit` is missing or belongs to the other package.
    """
    spec = importlib.util.find_spec("keras_vit")
    origin = spec.origin if spec else None
    if origin is None or not is_ours(Path(origin)):
        raise ModuleNotFoundError(
            f"`keras_vit` must be the package of {DISTRIBUTION}. Received: {origin or 'nothing'}, "
            f"which another package (such as the abandoned {FOREIGN_DISTRIBUTION}) put there "
            f"or left behind. Repair it with\n{REMEDY}"
        )
    # Not by importlib.metadata, whose import takes a tenth of the time of `--help`.
    pattern = f"{FOREIGN_DISTRIBUTION.replace('-', '_')}-*.dist-info"
    foreign = next((found for folder in sys.path for found in Path(folder).glob(pattern)), None)
    if foreign is None:
        return None
    version = foreign.stem.rpartition("-")[2]
    return (
        f"{FOREIGN_DISTRIBUTION} {version}, an unrelated package with a module of the same name, "
        f"is installed as well and may have overwritten files. Remove it with\n{REMEDY}"
    )


def register_package() -> None:
    """Registers `keras_vit` without running its `__init__.py`, which imports Keras."""
    spec = importlib.util.find_spec("keras_vit")
    if spec is not None:
        sys.modules.setdefault("keras_vit", importlib.util.module_from_spec(spec))


def main() -> None:
    """Run the `keras-vit` command."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        warning = check()
    except ModuleNotFoundError as error:
        sys.exit(f"keras-vit: {error}")
    if warning:
        print(f"keras-vit: warning: {warning}", file=sys.stderr)
    register_package()
    importlib.import_module("keras_vit.cli").main()


if __name__ == "__main__":
    main()
