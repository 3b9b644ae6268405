"""ResNet-50 as Keras has it (He et al. 2015, with the stride in each stage's first 1 x 1 convolution), and its work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from dyno.frameworks.contract import JitCompile

DtypePolicy = Literal["float32", "mixed_bfloat16", "mixed_float16"]
CHANNELS = 3
_STEM = (7, 64)  # kernel, channels
_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # channels of the narrow convolutions, blocks
_WIDENING = 4


def convolutions(image_size: int) -> Iterator[tuple[int, int, int, int]]:
    """(side of the output, kernel, channels in, channels out) of all 53."""
    kernel, channels = _STEM
    side = (image_size + 6 - kernel) // 2 + 1
    yield side, kernel, CHANNELS, channels
    side = (side + 2 - 3) // 2 + 1  # pooling, 3 x 3, every other place
    for stage, (narrow, blocks) in enumerate(_STAGES):
        for block in range(blocks):
            if block == 0:
                side = side if stage == 0 else (side - 1) // 2 + 1
                yield side, 1, channels, narrow * _WIDENING
            yield side, 1, channels, narrow
            yield side, 3, narrow, narrow
            yield side, 1, narrow, narrow * _WIDENING
            channels = narrow * _WIDENING


def forward_flops(image_size: int, classes: int) -> float:
    """Of one image, multiply-add = 2: 7.7 GFLOP at 224 x 224 x 3 and 1000 classes.

    Convolution 2·H·W·k²·C_in·C_out, dense 2·in·out; normalisation, activations, pooling and additions are left out.
    The 4.1 G multiply-adds often quoted are those of the later variant with the stride in the 3 x 3 convolution.
    """
    products = sum(side**2 * kernel**2 * into * out for side, kernel, into, out in convolutions(image_size))
    return 2.0 * (products + _STAGES[-1][0] * _WIDENING * classes)


def make(
    keras: Any, image_size: int, classes: int, policy: DtypePolicy, optimizer: Any, jit_compile: JitCompile
) -> Any:
    """Compiled for training on uint8 images and class numbers, with fresh weights. The softmax stays in float32."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        body = keras.applications.ResNet50(
            weights=None, input_shape=(image_size, image_size, CHANNELS), classes=classes, classifier_activation=None
        )
        images = keras.Input((image_size, image_size, CHANNELS), dtype="uint8")
        logits = body(keras.layers.Rescaling(1 / 127.5, offset=-1)(images))
        model = keras.Model(images, keras.layers.Activation("softmax", dtype="float32")(logits))
        model.compile(
            optimizer=optimizer,
            loss="sparse_categorical_crossentropy",
            jit_compile=jit_compile,
        )
    finally:
        keras.config.set_dtype_policy(before)
    return model
