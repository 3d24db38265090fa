"""Entry point of the `keras-vit` command: makes sure that `keras_vit` is ours, then starts it.

An abandoned package on PyPI, of another author, is called keras-vit and installs a module of the
same name, `keras_vit`. Whichever is installed last overwrites the other. This module lies outside
`keras_vit`, so that it can still say so; and so that the command line, a part of `keras_vit`, can
answer `--help` and refuse a wrong option before Keras is imported, which takes seconds.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType

DISTRIBUTION = "keras-vit-toolkit"
FOREIGN_DISTRIBUTION = "keras-vit"
REMEDY = f"""\
    pip uninstall {FOREIGN_DISTRIBUTION}
    pip install --force-reinstall --no-deps -e .    # in the checkout of keras_vit"""

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Copies stdin to stderr without information, warnings and errors of TensorFlow's C++ log; what is
# fatal there, and all that others write, is copied.
_FILTER = r"""
import os, re, sys
log_line = re.compile(
    rb"[IWE]\d{4} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] "
    rb"|WARNING: All log messages before absl::InitializeLog\(\)|INFO: Created TensorFlow Lite "
)
for line in sys.stdin.buffer:
    if not log_line.match(line):
        os.write(2, line)
"""


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
    try:
        foreign = metadata.distribution(FOREIGN_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    return (
        f"{FOREIGN_DISTRIBUTION} {foreign.version}, an unrelated package with a module of the same "
        f"name, is installed as well and may have overwritten files. Remove it with\n{REMEDY}"
    )


def start_keras() -> None:
    """Imports `keras_vit` in full, and with it Keras and TensorFlow; a second call does nothing.

    Until the process ends, TensorFlow's log is left out of stderr.
    """
    if hasattr(sys.modules.get("keras_vit"), "__all__"):
        return
    until_the_end = contextlib.ExitStack()
    until_the_end.enter_context(quiet_tensorflow())
    atexit.register(until_the_end.close)
    importlib.reload(_register_package())


def _register_package() -> ModuleType:
    """Registers `keras_vit` without running its `__init__.py`, which imports Keras."""
    spec = importlib.util.find_spec("keras_vit")
    if spec is not None:
        sys.modules.setdefault("keras_vit", importlib.util.module_from_spec(spec))
    return sys.modules["keras_vit"]


@contextlib.contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Leaves TensorFlow's log out of stderr, also lines that TF_CPP_MIN_LOG_LEVEL does not reach.

    Another process passes everything else on, so that nothing is lost if this one crashes. What
    Python writes goes to stderr itself, which may be a terminal. With TF_CPP_MIN_LOG_LEVEL=0, as
    `--verbose` sets it, nothing is left out.
    """
    outside = sys.stderr
    if os.environ.get(LOG_LEVEL) == "0" or outside is None:
        yield
        return
    outside.flush()
    reader, writer = os.pipe()
    command = [sys.executable, "-IS", "-c", _FILTER]
    # In a session of its own, Ctrl-C does not end it.
    process = subprocess.Popen(
        command, stdin=reader, stdout=subprocess.DEVNULL, start_new_session=True
    )
    kept = os.dup(2)
    os.dup2(writer, 2)
    os.close(reader)
    os.close(writer)
    direct = open(kept, "w", 1, outside.encoding, outside.errors)  # noqa: SIM115 loggers keep it
    if outside is sys.__stderr__:
        sys.stderr = direct
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = outside if sys.stderr is direct else sys.stderr
        os.dup2(kept, 2)
        with contextlib.suppress(subprocess.TimeoutExpired):  # a child may keep the pipe open
            process.wait(timeout=5)


def main() -> None:
    """Run the `keras-vit` command."""
    os.environ.setdefault(LOG_LEVEL, "2")
    try:
        warning = check()
    except ModuleNotFoundError as error:
        sys.exit(f"keras-vit: {error}")
    if warning:
        print(f"keras-vit: warning: {warning}", file=sys.stderr)
    _register_package()
    from keras_vit.cli import main as start

    start()


if __name__ == "__main__":
    main()
