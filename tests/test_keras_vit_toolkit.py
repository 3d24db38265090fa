"""The entry point, confronted with the abandoned package that installs a module of our name."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import keras_vit_toolkit

REMEDY = "    pip uninstall keras-vit\n    pip install --force-reinstall --no-deps -e ."


def write_package(folder: Path, *, ours: bool) -> None:
    """A `keras_vit` package; ours says its distribution and has a command line that echoes."""
    package = folder / "keras_vit"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('DISTRIBUTION = "keras-vit-toolkit"\n' if ours else "\n")
    if ours:
        (package / "cli").mkdir()
        (package / "cli" / "__init__.py").write_text(
            "import os, sys\n\n"
            "def main():\n"
            "    print('cli', sys.argv[1:], 'log level', os.environ['TF_CPP_MIN_LOG_LEVEL'])\n"
        )


def write_foreign_metadata(folder: Path) -> None:
    info = folder / "keras_vit-0.0.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: keras-vit\nVersion: 0.0.9\n")


def run_main(path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`keras-vit ARGUMENTS` where `path` comes first on the import path."""
    path.mkdir(exist_ok=True)
    outer = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    module = Path(keras_vit_toolkit.__file__)
    code = (
        f"import sys; sys.path[:0] = [{str(path)!r}, {str(module.parent)!r}]; "
        "import keras_vit_toolkit; keras_vit_toolkit.main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**outer, **environment},
        cwd=path,
        capture_output=True,
        text=True,
        check=False,
    )


def test_main_starts_the_command_line(tmp_path: Path) -> None:
    write_package(tmp_path, ours=True)
    done = run_main(tmp_path, "train", "--lr", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "cli ['train', '--lr', '1'] log level 2\n"
    assert done.stderr == ""


def test_main_leaves_a_chosen_log_level(tmp_path: Path) -> None:
    write_package(tmp_path, ours=True)
    assert run_main(tmp_path, TF_CPP_MIN_LOG_LEVEL="0").stdout == "cli [] log level 0\n"


def test_main_stops_when_another_package_shadows_ours(tmp_path: Path) -> None:
    write_package(tmp_path, ours=False)
    done = run_main(tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "`keras_vit` must be the package of keras-vit-toolkit. Received: " in done.stderr
    assert str(tmp_path / "keras_vit" / "__init__.py") in done.stderr
    assert REMEDY in done.stderr
    assert "Traceback" not in done.stderr


def test_main_stops_when_another_package_overwrote_our_init(tmp_path: Path) -> None:
    write_package(tmp_path, ours=True)
    (tmp_path / "keras_vit" / "__init__.py").write_text("from keras_vit.vit import ViT_B16\n")
    done = run_main(tmp_path)
    assert done.returncode == 1
    assert REMEDY in done.stderr


def test_main_warns_when_the_other_package_is_installed_beside_ours(tmp_path: Path) -> None:
    write_package(tmp_path, ours=True)
    write_foreign_metadata(tmp_path)
    done = run_main(tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("cli []")
    assert "warning: keras-vit 0.0.9, an unrelated package" in done.stderr
    assert REMEDY in done.stderr


def test_check_reports_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="Received: nothing"):
        keras_vit_toolkit.check()


def test_check_accepts_this_package() -> None:
    assert keras_vit_toolkit.check() is None


LOG = (
    b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    b"I0000 00:00:1795485911.319100    4332 port.cc:153] oneDNN custom operations are on.\n"
    b"E0000 00:00:1795485982.200211    5372 cuda_platform.cc:52] failed call to cuInit\n"
    b"2025-09-17 14:44:05.157831: I external/local_xla/cudart_stub.cc:32] no cuda drivers\n"
    b"INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n"
)
OTHER = b"UserWarning: odd\nF0000 00:00:1795485911.3 43 cpu.cc:1] needs AVX instructions\n"


def run_quietly(code: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A process that writes a log, and what must be read, within `quiet_tensorflow`."""
    before = "import os, keras_vit_toolkit as start\nwith start.quiet_tensorflow():\n    "
    return subprocess.run(
        [sys.executable, "-c", f"{before}os.write(2, {LOG + OTHER!r})\n{code}"],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environment},
        cwd=Path(keras_vit_toolkit.__file__).parent,
        capture_output=True,
        check=False,
    )


def test_quiet_tensorflow_leaves_out_its_log_and_nothing_else() -> None:
    done = run_quietly("os.write(2, b'I0000 00:00:1 afterwards\\n')")
    assert done.stderr == OTHER + b"I0000 00:00:1 afterwards\n"
    assert done.returncode == 0


def test_what_python_writes_goes_past_the_filter() -> None:
    code = "    import sys; print(LOG, file=sys.stderr); loud = sys.stderr\nprint('end', file=loud)"
    done = run_quietly(code.replace("LOG", repr(LOG.decode())))
    assert sorted(done.stderr.splitlines()) == sorted((OTHER + LOG + b"\nend").splitlines())


def test_stderr_that_was_replaced_stays() -> None:
    code = """
import contextlib, io
with contextlib.redirect_stderr(io.StringIO()) as said, start.quiet_tensorflow():
    import sys; print("kept", file=sys.stderr)
assert said.getvalue() == "kept\\n" and sys.stderr is sys.__stderr__"""
    done = run_quietly(code)
    assert (done.stderr, done.returncode) == (OTHER, 0)


@pytest.mark.parametrize("end", ["os.abort()", "os.kill(os.getpid(), 9)", "raise OSError('full')"])
def test_quiet_tensorflow_loses_nothing_in_a_crash(end: str) -> None:
    done = run_quietly(f"    os.write(2, b'the end'); {end}")
    assert done.returncode != 0
    assert done.stderr.startswith(OTHER + b"the end")
    assert b"full" in done.stderr or "raise" not in end


def test_quiet_tensorflow_leaves_out_nothing_at_log_level_0() -> None:
    assert run_quietly("", TF_CPP_MIN_LOG_LEVEL="0").stderr == LOG + OTHER


def test_quiet_tensorflow_does_without_stderr() -> None:
    code = "import keras_vit_toolkit as start\nwith start.quiet_tensorflow(): print(1)"
    command = f"exec {sys.executable} -c '{code}' 2>&-"
    here = Path(keras_vit_toolkit.__file__).parent
    done = subprocess.run(command, shell=True, cwd=here, stdout=subprocess.PIPE, check=False)
    assert (done.stdout, done.returncode) == (b"1\n", 0)
