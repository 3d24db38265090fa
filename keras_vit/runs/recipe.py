"""Training recipes, which contain the hyperparameters of a run."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, get_args

from keras_vit import arguments
from keras_vit.arguments import Count, Fraction, NonNegative, Positive, PositiveInt, Rate, among
from keras_vit.choices import DECAYS, TOKEN_POOLINGS, Optimizer, Precision
from keras_vit.data import Augmentation
from keras_vit.preprocessing import RESIZE_METHODS


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Hyperparameters of a training run.

    The default values describe plain AdamW. The default recipe of a run is `recipe("finetune")`;
    `recipe("finetune").replace(epochs=3)` changes one of its hyperparameters.

    Args:
        epochs: Passes over the training examples; 0 is possible with `ridge_head`.
        early_stopping: Epochs without a better validation result (accuracy, mean average
            precision, mean IoU or mean absolute error; for ties and other tasks loss) after which
            training ends; 0 to train all epochs.
        batch_size: Global batch size, over all devices.
        accumulation_steps: Number of micro-batches per batch, computed in sequence to need less
            memory; the result is the same.
        image_size: Height and width in pixels; None for the size of the weights.
        resize: How images of another aspect ratio are resized in training, evaluation and serving:
            `"crop"`, `"squash"`, `"squash_crop"` or `"pad"`, see `keras_vit.Preprocessing`; None
            for that of the weights.
        optimizer: `"adamw"`, `"sgd"` with momentum, `"lion"` or `"adafactor"`.
        learning_rate: Peak learning rate, 0 or more, for this batch size.
        warmup_fraction: Fraction of the steps for linear warm-up from 0, in [0, 1).
        warmup_steps: Steps of warm-up; overrides `warmup_fraction` if not 0.
        decay: Decay after the warm-up: `"cosine"`, `"linear"`, `"rsqrt"` or `"constant"`.
        final_fraction: Final fraction of the peak with cosine and linear decay, in [0, 1].
        timescale: Steps in which rsqrt decays to 1 / sqrt(2).
        layer_decay: Layer-wise learning-rate decay from each layer to the one below, in (0, 1].
        beta_1: Momentum, in [0, 1); not for Adafactor.
        beta_2: Decay of the second moment, in [0, 1), or of Lion's momentum; not for Adafactor.
        weight_decay: Weight decay, 0 or more, multiplied by the learning rate of the step.
        weight_decay_on: `"kernels"` (not biases, norms, tokens and position embeddings, nor kernels
            of separable convolutions and low-rank updates) or `"all"`.
        weight_decay_coupled: Whether weight decay is added to the gradient, as in PyTorch's SGD,
            and not subtracted from the weights, as in AdamW.
        clip_norm: Maximum global norm of the gradients; 0 for no clipping.
        ema_momentum: Momentum of the moving average of the weights, which is evaluated, saved and
            exported in place of the weights, in [0, 1); 0 for none. After t steps it is at most
            (1 + t) / (10 + t), so that the average of a short run is not that of its first steps.
        pooling: Tokens that the classifier reads, such as `"token_gap"`, see `keras_vit.ViTConfig`;
            None for those of the weights.
        ridge_head: Whether the classifier starts from ridge regression on the frozen features of
            the training images, its regularization chosen by cross-validation.
        trainable: Patterns of the trainable parameters, such as `("head/*",)`.
        lora_rank: Rank of trained low-rank updates (LoRA) of the dense layers of the blocks, whose
            kernels are then frozen; 0 for none. Saved models contain the merged kernels.
        lora_layers: Patterns of the dense layers with LoRA, such as `("*/attention/*",)`.
        loss: `"softmax"` cross-entropy; `"sigmoid"`, binary cross-entropy for each class, which
            multi-label data require; or `"softmax_dice"`, cross-entropy and Dice loss, for
            segmentation.
        label_smoothing: Fraction of the target spread over all classes, in [0, 1); with
            `"sigmoid"` over positive and negative.
        class_weights: `"balanced"` weights the loss inversely to the class frequency.
        sampling: `"balanced"` draws all classes equally often in each epoch of as many images,
            and `"uniform"` every image once.
        logit_adjustment: Factor of the logarithm of each class's frequency, added to the logits in
            training; 1 is usual for unequal classes, 0 for none.
        focal_gamma: Exponent of the focal loss, which weights examples by (1 - p)^gamma, where p
            is the probability of the true class; 2 is usual, 0 for none.
        distillation: `"hard"`, distillation of the class predicted by a teacher, or `"soft"`, of
            its probabilities; or `"none"`. Applies to the distillation head, if the model has
            one, otherwise to its only head.
        distillation_weight: Weight of the teacher in the loss, in [0, 1].
        distillation_temperature: Divisor of both models' logits in soft distillation, above 0.
        dropout_rate: Dropout rate, in [0, 1).
        stochastic_depth_rate: Stochastic depth rate of the last block, in [0, 1).
        augmentation: Augmentation of the images.
        precision: `"float32"`, `"mixed_bfloat16"`, `"mixed_float16"`, or `"auto"`: the fastest
            on this machine.
        remat: Whether the blocks are rematerialized in the backward pass (gradient checkpointing).
        seed: Seed of initialization, order and augmentation, in [0, 2**32).

    Raises:
        ValueError: If a value is out of range.

    Examples:
        >>> Recipe(epochs=3, learning_rate=1e-4).optimizer
        'adamw'

    Reference: warm-up, cosine decay and clipping at 1 are those of the paper's fine-tuning,
    appendix B.1.1 of https://arxiv.org/abs/2010.11929
    """

    epochs: Count = 4
    early_stopping: Count = 0
    batch_size: PositiveInt = 16
    accumulation_steps: PositiveInt = 1
    image_size: tuple[int, int] | None = None
    resize: Annotated[str | None, among(*RESIZE_METHODS, None)] = None
    optimizer: Annotated[str, among(*get_args(Optimizer))] = "adamw"
    learning_rate: NonNegative = 1e-4
    warmup_fraction: Rate = 0.1
    warmup_steps: Count = 0
    decay: Annotated[str, among(*DECAYS)] = "cosine"
    final_fraction: Fraction = 0.0
    timescale: Positive = 10_000.0
    layer_decay: Annotated[float, arguments.positive_fraction] = 1.0
    beta_1: Rate = 0.9
    beta_2: Rate = 0.999
    weight_decay: NonNegative = 0.05
    weight_decay_on: Annotated[str, among("kernels", "all")] = "kernels"
    weight_decay_coupled: bool = False
    clip_norm: NonNegative = 1.0
    ema_momentum: Rate = 0.0
    pooling: Annotated[str | None, among(*TOKEN_POOLINGS, "map", None)] = None
    ridge_head: bool = False
    trainable: tuple[str, ...] = ("*",)
    lora_rank: Count = 0
    lora_layers: tuple[str, ...] = ("*",)
    loss: Annotated[str, among("softmax", "sigmoid", "softmax_dice")] = "softmax"
    label_smoothing: Rate = 0.0
    class_weights: Annotated[str, among("none", "balanced")] = "none"
    sampling: Annotated[str, among("uniform", "balanced")] = "uniform"
    logit_adjustment: NonNegative = 0.0
    focal_gamma: NonNegative = 0.0
    distillation: Annotated[str, among("none", "soft", "hard")] = "none"
    distillation_weight: Fraction = 0.5
    distillation_temperature: Positive = 1.0
    dropout_rate: Rate = 0.0
    stochastic_depth_rate: Rate = 0.0
    augmentation: Augmentation = dataclasses.field(default_factory=Augmentation)
    precision: Annotated[str, among(*get_args(Precision))] = "auto"
    remat: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        arguments.check_kinds(self)
        if not self.epochs and (not self.ridge_head or self.ema_momentum):
            raise ValueError(
                "`epochs` must be 1 or more, or 0 with ridge_head=true and ema_momentum=0. "
                f"Received: epochs=0, ridge_head={self.ridge_head}, "
                f"ema_momentum={self.ema_momentum}"
            )
        if self.ridge_head and self.loss != "softmax":
            raise ValueError(
                f"`loss` must be 'softmax' with ridge_head=true. Received: loss={self.loss!r}"
            )
        if self.batch_size > 2**20:
            raise ValueError(f"`batch_size` must be at most 2**20. Received: {self.batch_size}")
        if self.batch_size % self.accumulation_steps:
            raise ValueError(
                "`batch_size` must be a multiple of `accumulation_steps`. Received: "
                f"batch_size={self.batch_size}, accumulation_steps={self.accumulation_steps}"
            )
        # The range of NumPy's seeds.
        if not hasattr(self.seed, "__index__") or not 0 <= self.seed < 2**32:
            raise ValueError(f"`seed` must be in [0, 2**32). Received: seed={self.seed!r}")
        # A frozen dataclass can only be normalized through object.__setattr__.
        for name, patterns in (("trainable", self.trainable), ("lora_layers", self.lora_layers)):
            if not all(isinstance(pattern, str) for pattern in patterns):
                raise ValueError(f"`{name}` must only contain text. Received: {name}={patterns}")
            object.__setattr__(self, name, tuple(patterns))
        if self.image_size is not None:
            size = arguments.size_pair("image_size", self.image_size)
            object.__setattr__(self, "image_size", size)

    def replace(self, **changes: Any) -> Recipe:
        """Returns a copy of the recipe with some fields changed; None leaves a field unchanged.

        Args:
            **changes: New values by field of `Recipe` or `Augmentation`. For `image_size`, None is
                a value.

        Returns:
            The new recipe.

        Raises:
            ValueError: If a value is out of range, or a field is unknown.

        Examples:
            >>> Recipe().replace(epochs=7, mixup=0.2, seed=None).augmentation.mixup
            0.2
        """
        values = {
            name: value
            for name, value in changes.items()
            if value is not None or name == "image_size"
        }
        recipe_fields = {field.name for field in dataclasses.fields(Recipe)}
        augmentation_fields = {field.name for field in dataclasses.fields(Augmentation)}
        for name in values:
            if name not in recipe_fields | augmentation_fields:
                hint = arguments.nearest(name, recipe_fields | augmentation_fields)
                raise ValueError(f"{name!r} is not a recipe field.{hint}")
        nested = {name: values.pop(name) for name in list(values) if name in augmentation_fields}
        if nested:
            base = dataclasses.replace(self, **values).augmentation
            values["augmentation"] = dataclasses.replace(base, **nested)
        return dataclasses.replace(self, **values)
