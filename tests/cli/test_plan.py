from __future__ import annotations

import json
from pathlib import Path

import pytest

from keras_vit.cli.plan import parse_bytes
from tests.cli.commands import Call, check_failure

pytestmark = pytest.mark.tensorflow


def test_plan_says_what_fits_and_what_would_help(call: Call, tmp_path: Path) -> None:
    report = tmp_path / "plan.json"
    code, output, _ = call(
        *("plan", "--model", "ViTL16", "--batch", 64, "--memory", "16GiB", "--json", report)
    )
    assert code == 0
    assert "training with adamw, float32, batch of 64" in output
    assert "304,326,632" in output
    assert "does not fit" in output
    assert "remat=true" in output
    content = json.loads(report.read_text())
    assert content["batch_size"] == 64
    assert f"{content['total'] / 2**20:,.0f} MiB" in output
    assert f"{content['largest_batch']:,}\n" in output
    assert f"Written: {report}" in output


def test_plan_of_a_model_without_a_constructor(call: Call) -> None:
    code, output, _ = call("plan", "--model", "DINOv37B16", "--memory", "80GB", "--inference")
    assert code == 0
    assert "DINOv37B16 at 256 x 256 pixels, 1000 classes: inference" in output
    assert "6,720,127,976" in output
    code, _, message = call("plan", "--model", "DINOv38B16", "--memory", "80GB")
    check_failure(code, message, "`model` must be one of these")


def test_plan_takes_its_options(call: Call, tmp_path: Path) -> None:
    report = tmp_path / "plan.json"
    code, output, _ = call(
        *("plan", "--model", "ViTTi16", "--memory", "8GB", "--image-size", "96x160"),
        *("--classes", 5, "--recipe", "from_scratch", "--set", "ema_momentum=0.9"),
        *("--precision", "mixed_bfloat16", "--optimizer", "sgd", "--remat", "--frozen"),
        *("--kind", "cpu", "--json", report),
    )
    assert code == 0
    assert "ViTTi16 at 96 x 160 pixels, 5 classes: training with sgd, gradient" in output
    assert "mixed_bfloat16, batch of 32" in output
    assert "fits" in output
    assert "Settings to try" not in output
    memory = json.loads(report.read_text())["memory"]
    assert memory["gradients"] == memory["averages"] == 4 * (192 * 5 + 5)
    assert memory["activations"] == 0


def test_plan_of_inference_keeps_nothing(call: Call) -> None:
    code, output, _ = call("plan", "--model", "ViTTi16", "--memory", "4GiB", "--inference")
    assert code == 0
    assert "classes: inference, float32, batch of 16" in output
    assert "gradients" not in output
    assert "activations" not in output


def test_plan_counts_less_where_chains_are_compiled(call: Call, tmp_path: Path) -> None:
    totals = {}
    for kind in ("gpu", "cpu"):
        report = tmp_path / f"{kind}.json"
        call("plan", "--model", "ViTTi16", "--memory", "4GiB", "--kind", kind, "--json", report)
        totals[kind] = json.loads(report.read_text())["total"]
    assert totals["cpu"] < totals["gpu"]


def test_plan_says_if_nothing_is_enough(call: Call) -> None:
    _, output, _ = call("plan", "--model", "ViTG14", "--memory", "8GiB")
    assert "None of these saves enough: use a smaller model" in output
    _, output, _ = call(
        *("plan", "--model", "ViTG14", "--memory", "4G", "--batch", 8, "--inference")
    )
    assert "Settings to try" not in output
    assert (
        "No setting saves enough memory: use a smaller model, image size or batch size." in output
    )


def test_plan_refuses_a_model_that_is_none(call: Call) -> None:
    code, _, message = call("plan", "--model", "ViTB61", "--memory", "8GiB")
    check_failure(code, message, "Did you mean 'ViTB16'?")


def test_plan_refuses_a_number_of_classes_that_no_model_has(call: Call) -> None:
    code, _, message = call("plan", "--model", "ViTB16", "--memory", "8GiB", "--classes", "9" * 400)
    assert code == 2
    assert "Invalid value for '--classes'" in message


@pytest.mark.parametrize("text", ["16", "GiB", "0GiB", "16gib", "-1GiB", "9" * 400 + "GiB"])
def test_parse_bytes_refuses_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match=r"`--memory` must be a size such as 16GiB\."):
        parse_bytes(text)


def test_parse_bytes_knows_both_kinds_of_units() -> None:
    assert parse_bytes("3KiB") == 3072
    assert parse_bytes("3 KB") == 3000
    assert parse_bytes("0.5GiB") == 2**29
