from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.layers import TransformerBlock
from keras_vit.models import build
from keras_vit.tasks.masked_autoencoder.objective import MaskedAutoencoderObjective, reconstructions
from keras_vit.training.distribution import Devices, devices
from keras_vit.training.training_model import TrainingModel
from keras_vit.weights import load_weights, read_checkpoint
from keras_vit.weights.containers.safetensors import write_safetensors
from keras_vit.weights.infer_config import config_of
from tests.helpers import assert_close, normal, numpy, randomise
from tests.tasks.masked import (
    PATCHES,
    PREFIX,
    VALUES,
    WIDTH,
    colors,
    images,
    network,
    random_network,
    updates,
)

ON_JAX = keras.backend.backend() == "jax"
DECODER = {"decoder_width": 16, "decoder_depth": 1, "decoder_heads": 2}


def autoencoder(model: keras.Model | None = None, **settings: Any) -> MaskedAutoencoderObjective:
    return MaskedAutoencoderObjective(model or network(), **DECODER | settings)


def noise_of(*visible_first: list[int]) -> np.ndarray:
    """Noise that makes patches visible in this order."""
    noise = np.empty((len(visible_first), PATCHES), "float32")
    for row, order in zip(noise, visible_first, strict=True):
        row[[*order, *(i for i in range(PATCHES) if i not in order)]] = np.arange(PATCHES) / PATCHES
    return noise


@pytest.fixture(scope="module")
def two() -> Devices:
    """Two logical CPUs that share a batch."""
    return devices("jax" if ON_JAX else "mirrored")


def test_encoder_of_all_patches_is_the_whole_model() -> None:
    model, x = random_network(pooling="none"), images(2)
    noise = normal(2, PATCHES)
    z = numpy(autoencoder(model, mask_ratio=0.0).encode_visible(x, noise, training=False))
    expected = numpy(model(x))
    assert_close(z[:, :PREFIX], expected[:, :PREFIX], 1e-5)  # 2e-6 was seen
    for example, order in enumerate(np.argsort(noise, axis=1)):
        assert_close(z[example, PREFIX:], expected[example, PREFIX:][order], 1e-5)


def test_encoder_sees_nothing_but_the_visible_patches() -> None:
    objective = autoencoder(random_network())  # three of 15 patches are visible
    noise = noise_of([7, 0, 12])
    x = images(1)
    z = numpy(objective.encode_visible(x, noise, training=False))
    assert z.shape == (1, PREFIX + 3, WIDTH)
    patches = numpy(objective.encoder.patches(x)).copy()
    hidden = [i for i in range(PATCHES) if i not in (7, 0, 12)]
    patches[:, hidden] += 5
    np.testing.assert_array_equal(
        numpy(objective.encode_visible(objective.encoder.images(patches), noise, training=False)), z
    )
    patches[:, 12] += 5
    changed = objective.encode_visible(objective.encoder.images(patches), noise, training=False)
    assert np.abs(numpy(changed) - z).max() > 0.1


def test_predictions_stand_at_their_patches() -> None:
    # Without attention between places a prediction follows from its own token and position.
    objective = autoencoder(random_network(), mask_ratio=0.5)
    for block in objective.decoder.blocks:
        block.set_weights([np.zeros_like(w) for w in block.get_weights()])
    first, second = noise_of([7, 0, 12, 3, 9, 4, 11]), noise_of([7, 0, 12, 3, 9, 4, 2])
    x = images(1)
    one, masked = (numpy(t) for t in objective.predict_patches(x, first, training=False))
    other, _ = (numpy(t) for t in objective.predict_patches(x, second, training=False))
    assert np.flatnonzero(masked[0] == 0).tolist() == [0, 3, 4, 7, 9, 11, 12]
    assert set(masked.ravel()) == {0.0, 1.0}
    same = np.abs(one - other).max(axis=-1)[0] == 0
    assert np.flatnonzero(same).tolist() == [1, 5, 6, 8, 10, 13, 14]  # masked both times
    assert len(np.unique(one[0, same], axis=0)) == same.sum()  # but not at the same place


@pytest.mark.parametrize(
    ("ratio", "visible"), [(0.0, 15), (0.4, 9), (0.5, 7), (0.75, 3), (0.8, 3), (0.93, 1)]
)
def test_number_of_visible_patches_is_rounded_down(ratio: float, visible: int) -> None:
    objective = autoencoder(mask_ratio=ratio)
    assert objective.num_visible == visible
    _, masked = objective.predict_patches(images(2), normal(2, PATCHES), training=False)
    assert numpy(masked).sum(axis=1).tolist() == [15 - visible] * 2


def losses(
    objective: MaskedAutoencoderObjective, x: np.ndarray, predicted: np.ndarray, masked: np.ndarray
) -> np.ndarray:
    """The loss of each image if these were its predictions."""
    objective.predict_patches = lambda *_: (  # type: ignore[method-assign]
        ops.convert_to_tensor(predicted, "float32"),
        ops.convert_to_tensor(masked, "float32"),
    )
    found, _ = objective.example_losses(ops.convert_to_tensor(x), None, training=False)
    return numpy(found)


def test_loss_counts_only_masked_patches() -> None:
    objective = autoencoder(norm_pix=False, mask_ratio=0.87)  # one of 15 is visible
    patches = np.zeros((2, PATCHES, VALUES), "float32")
    patches[0, 4], patches[0, 6], patches[1, 4] = 2.0, 1e6, 1.0
    masked = np.ones((2, PATCHES))
    masked[:, 6] = 0
    x = numpy(objective.encoder.images(patches))
    assert objective.num_visible == 1
    # 2^2 and 1^2 in one of 14 patches.
    found = losses(objective, x, np.zeros((2, PATCHES, VALUES)), masked)
    np.testing.assert_allclose(found, [4 / 14, 1 / 14], rtol=1e-6)


def test_targets_are_relative_to_their_patch() -> None:
    objective = autoencoder(mask_ratio=0.87)
    rng = np.random.default_rng(3)
    patches = rng.normal(size=(1, PATCHES, VALUES)).astype("float32")
    mean, std = patches.mean(-1, keepdims=True), patches.std(-1, ddof=1, keepdims=True)
    masked = np.arange(PATCHES)[None] != 5
    for scale, offset in ((1.0, 0.0), (9.0, 40.0)):
        x = numpy(objective.encoder.images(patches * scale + offset))
        # With F - 1 degrees of freedom the squares of a patch sum to F - 1 = 23.
        zeros = losses(objective, x, np.zeros((1, PATCHES, VALUES)), masked)
        np.testing.assert_allclose(zeros, [23 / 24], rtol=1e-4)
        assert losses(objective, x, (patches - mean) / std, masked) < 1e-8
    # A patch of one value has no structure to predict.
    flat = numpy(objective.encoder.images(np.ones((1, PATCHES, VALUES), "float32")))
    assert losses(objective, flat, np.zeros((1, PATCHES, VALUES)), masked) == pytest.approx(0)


def test_masks_differ_between_examples_and_steps_and_follow_from_the_state() -> None:
    objective = autoencoder(seed=5)
    state = [v for v in objective.state if "seed_generator_state" in v.path]
    assert len(state) == 1
    before = numpy(state[0]).copy()
    first, second = (numpy(objective.noise(12, objective.seed_generator)) for _ in range(2))
    orders = {tuple(row) for row in np.argsort(np.concatenate([first, second]), axis=1)}
    assert len(orders) == 24
    state[0].assign(before)
    np.testing.assert_array_equal(numpy(objective.noise(12, objective.seed_generator)), first)


def test_every_patch_is_masked_equally_often() -> None:
    objective = autoencoder(seed=5)
    noise = numpy(objective.noise(4000, objective.seed_generator))
    visible = (np.argsort(np.argsort(noise, axis=1), axis=1) < 3).mean(axis=0)
    # 3 of 15, with a standard deviation of 0.0063.
    np.testing.assert_allclose(visible, 0.2, atol=0.03)


def test_validation_masks_are_the_same_every_time() -> None:
    objective = autoencoder()
    training_model = TrainingModel(objective)
    training_model.compile(optimizer="sgd", run_eagerly=not ON_JAX)
    x = images(12)
    before = numpy(objective.seed_generator.state).copy()
    first, second = (training_model.evaluate(x, batch_size=12, verbose=0) for _ in range(2))
    assert first == second
    np.testing.assert_array_equal(numpy(objective.seed_generator.state), before)


@pytest.mark.slow
def test_loss_falls_and_everything_learns() -> None:
    def make(model: keras.Model) -> MaskedAutoencoderObjective:
        return autoencoder(model, mask_ratio=0.5, norm_pix=False)

    history, objective = updates(
        make, x=colors(12 * 20), epochs=2, learning_rate=0.01, validates=True, clip_norm=1.0
    )
    assert history["loss"][0] > 0.2
    assert history["loss"][1] < 0.1  # 0.022 was seen; 0.49 by guessing gray
    assert history["val_loss"][1] < 0.1
    keras.utils.set_random_seed(7)
    untrained = make(network(num_layers=1))
    pairs = zip(objective.trainable_variables, untrained.trainable_variables, strict=True)
    for variable, old in pairs:
        assert np.any(numpy(variable) != numpy(old)), variable.path


@pytest.mark.slow
def test_network_keeps_its_classifier() -> None:
    model = random_network(classes=5)
    head = [w.copy() for w in model.get_layer("head").get_weights()]
    objective = autoencoder(model)
    training_model = TrainingModel(objective)
    training_model.compile(optimizer=keras.optimizers.SGD(0.1), run_eagerly=not ON_JAX)
    before = numpy(model.get_layer("block_00").weights[0]).copy()
    training_model.fit(images(12), batch_size=12, verbose=0)
    for weight, old in zip(model.get_layer("head").get_weights(), head, strict=True):
        np.testing.assert_array_equal(weight, old)
    assert np.any(numpy(model.get_layer("block_00").weights[0]) != before)


@pytest.mark.slow
def test_two_replicas_agree_with_one_device_in_the_mean(two: Devices) -> None:
    means = [updates(autoencoder, where, x=images(12 * 10))[0]["loss"][0] for where in (None, two)]
    if not ON_JAX:  # where the masks of a batch are drawn at once, wherever they are used
        assert means[0] != means[1]
    # 120 losses with a standard deviation of about 0.1.
    assert means[0] == pytest.approx(means[1], abs=0.03)


@pytest.mark.tensorflow
def test_replicas_mask_other_patches(two: Devices) -> None:
    import tensorflow as tf

    with two.strategy.scope():
        objective = autoencoder()

    @tf.function
    def draw() -> Any:
        return two.strategy.run(lambda: objective.noise(3, objective.seed_generator))

    one, other = (numpy(t) for t in two.strategy.experimental_local_results(draw()))
    assert np.all(one != other)
    later = two.strategy.experimental_local_results(draw())
    assert np.all(numpy(later[0]) != one)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_differs_by_its_precision(policy: str) -> None:
    x, found = ops.convert_to_tensor(images(2)), {}
    for dtype in ("float32", policy):
        keras.utils.set_random_seed(7)
        objective = autoencoder(network(dtype))
        losses, _ = objective.example_losses(x, None, training=True)
        assert keras.backend.standardize_dtype(losses.dtype) == "float32"
        found[dtype] = numpy(losses)
    assert objective.decoder.blocks[0].compute_dtype == policy.removeprefix("mixed_")
    assert_close(found[policy], found["float32"], 0.02)  # 1e-3 was seen


def test_perfect_predictions_reconstruct_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    objective, x = autoencoder(), images(2)
    patches = numpy(objective.encoder.patches(x))
    deviation = np.sqrt(patches.var(-1, ddof=1, keepdims=True) + 1e-6)
    perfect = (patches - patches.mean(-1, keepdims=True)) / deviation
    masked = (np.arange(PATCHES) != 7).astype("float32")[None].repeat(2, axis=0)
    predictions = ops.convert_to_tensor(perfect), ops.convert_to_tensor(masked)
    monkeypatch.setattr(objective, "predict_patches", lambda *_, **__: predictions)
    original, shown, completed = reconstructions(objective, x)
    np.testing.assert_array_equal(original, x)
    assert_close(completed, x, 1e-5)
    visible = np.zeros_like(x)
    visible[:, 4:8, 4:6] = x[:, 4:8, 4:6]
    np.testing.assert_array_equal(shown, visible)


@pytest.mark.parametrize("norm_pix", [True, False])
def test_reconstruction_keeps_what_is_visible(norm_pix: bool) -> None:
    objective, x = autoencoder(random_network(), norm_pix=norm_pix), images(2) + 3
    original, shown, completed = reconstructions(objective, x, seed=3)
    visible = shown != 0
    assert visible.sum() == 2 * 3 * VALUES
    np.testing.assert_array_equal(completed[visible], original[visible])
    assert np.abs(completed - original)[~visible].max() > 0.1
    assert (reconstructions(objective, x, seed=4)[1] != shown).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit_mae_pretraining", "vit_mae_norm_pix"])
def test_parity_with_transformers(
    name: str, recipe: ModuleType, test_data: Path, tmp_path: Path
) -> None:
    case = recipe.load(str(test_data / "reference" / "hf" / f"{name}.json"))
    tensors, expected, settings = recipe.weights(case), recipe.outputs(case), case["kwargs"]
    write_safetensors(tmp_path / "model.safetensors", tensors)
    checkpoint = read_checkpoint(tmp_path / "model.safetensors")
    model = build(config_of(checkpoint, num_heads=4, pooling="none"))
    load_weights(model, checkpoint, report=True)
    objective = MaskedAutoencoderObjective(
        model,
        mask_ratio=settings.get("mask_ratio", 0.75),
        norm_pix=settings.get("norm_pix_loss", False),
        decoder_width=settings["decoder_hidden_size"],
        decoder_depth=settings["decoder_num_hidden_layers"],
        decoder_heads=settings["decoder_num_attention_heads"],
    )
    # Ours is four times as wide as a token inside, as the published ones are.
    objective.decoder.blocks = [
        TransformerBlock(4, settings["decoder_intermediate_size"], gelu="exact", epsilon=1e-12)
        for _ in objective.decoder.blocks
    ]
    for block in objective.decoder.blocks:
        block.build((None, None, settings["decoder_hidden_size"]))
    load_decoder(objective, {k: v for k, v in tensors.items() if k.startswith("decoder.")})
    x, noise = recipe.image(case), expected["noise"]
    assert_close(objective.encoder.patches(x), expected["patchified"], 0)
    predicted, masked = objective.predict_patches(x, noise, training=False)
    np.testing.assert_array_equal(numpy(masked), expected["mask"])
    assert_close(predicted, expected["logits"], 2e-5)  # 3e-6 was seen
    objective.noise = lambda *_: ops.convert_to_tensor(noise)  # type: ignore[method-assign]
    found, _ = objective.example_losses(ops.convert_to_tensor(x), None, training=False)
    assert numpy(found).mean() == pytest.approx(float(expected["loss"]), rel=1e-5)


def load_decoder(objective: MaskedAutoencoderObjective, tensors: dict[str, np.ndarray]) -> None:
    """Assigns every tensor of the published decoder, each once."""
    decoder = objective.decoder

    def take(name: str) -> np.ndarray:
        return tensors.pop(f"decoder.{name}")

    def dense(*names: str) -> list[np.ndarray]:
        kernels = [take(f"{name}.weight").T for name in names]
        return [np.concatenate(kernels, -1), np.concatenate([take(f"{n}.bias") for n in names])]

    def norm(name: str) -> list[np.ndarray]:
        return [take(f"{name}.weight"), take(f"{name}.bias")]

    decoder.mask_token.assign(take("mask_token"))
    decoder.positions = take("decoder_pos_embed")[0]
    decoder.embed.set_weights(dense("decoder_embed"))
    for index, block in enumerate(decoder.blocks):
        at = f"decoder_layers.{index}"
        block.norm_1.set_weights(norm(f"{at}.layernorm_before"))
        parts = [f"{at}.attention.attention.{part}" for part in ("query", "key", "value")]
        block.attention.qkv.set_weights(dense(*parts))
        block.attention.out.set_weights(dense(f"{at}.attention.output.dense"))
        block.norm_2.set_weights(norm(f"{at}.layernorm_after"))
        block.mlp.expand.set_weights(dense(f"{at}.intermediate.dense"))
        block.mlp.reduce.set_weights(dense(f"{at}.output.dense"))
    decoder.norm.set_weights(norm("decoder_norm"))
    decoder.output_projection.set_weights(dense("decoder_pred"))
    assert tensors == {}


def test_decoder_positions_are_the_authors() -> None:
    positions = autoencoder(decoder_width=8).decoder.positions
    assert positions.shape == (PREFIX + PATCHES, 8)
    assert not positions[:PREFIX].any()
    # Row 1, column 2: sin and cos of the column, then of the row, at frequencies 1 and 1/100.
    angles = np.array([2.0, 0.02, 1.0, 0.01])
    sines, cosines = np.sin(angles), np.cos(angles)
    expected = np.concatenate([sines[:2], cosines[:2], sines[2:], cosines[2:]])
    np.testing.assert_allclose(positions[PREFIX + 7], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mask_ratio": 1.0}, r"`mask_ratio` must be a number in \[0, 1\)"),
        ({"mask_ratio": 0.99}, "must leave at least one patch visible.*mask_ratio=0.99, 15 patch"),
        ({"decoder_heads": 3}, "and of `decoder_heads`.*decoder_width=16, decoder_heads=3"),
        (
            {"decoder_width": 6},
            "`decoder_width` must be a multiple of 4 and.*decoder_width=6",
        ),
    ],
)
def test_arguments_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        autoencoder(**settings)


def test_randomised_decoder_has_every_variable_trainable() -> None:
    objective = autoencoder()
    randomise(objective.decoder)
    assert {id(v) for v in objective.decoder.weights} <= {
        id(v) for v in objective.trainable_variables
    }
    assert len(objective.decoder.weights) == 1 + 2 + 12 + 2 + 2
