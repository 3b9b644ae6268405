"""The models that `inference` serves: networks of the articles, and Keras' applications, all with random weights.

Multiply-adds of the forward pass of an image, in billions, are those of the papers or of Keras' graph: VGG16 15.5
(Simonyan & Zisserman 2014), Inception v3 5.7 (Szegedy et al. 2015), ResNet-50 3.9 (He et al. 2015, version 1),
MobileNet v2 0.30 (Sandler et al. 2018), EfficientNet-B0 0.39 (Tan & Le 2019).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dyno.bench.training.images import Network
from dyno.bench.workloads.cifar10_cnn import PHOTOGRAPHS
from dyno.bench.workloads.mnist_cnn import DIGITS

ModelName = Literal["mnist_cnn", "cifar10_cnn", "mobilenet_v2", "efficientnet_b0", "resnet50", "inception_v3", "vgg16"]
_PATCHES = 7  # patches of one colour along each side of an image, so that the outputs of two images differ


@dataclass(frozen=True)
class BuiltInModel:
    """`make(keras)`: a model of uint8 images of this `shape`. `flops`: of the forward pass of an image.

    `start_s`: the time to build the model and to compile it for one batch size with TensorFlow, measured on two cores.
    """

    make: Callable[[Any], Any]
    shape: tuple[int, int, int]
    flops: float
    weights: int
    start_s: float

    def images(self, count: int, seed: int) -> NDArray[np.uint8]:
        """Random images, (count, height, width, channels)."""
        height, width, channels = self.shape
        patches = np.random.default_rng(seed).integers(0, 256, (count, _PATCHES, _PATCHES, channels), np.uint8)
        rows, columns = (np.arange(side) * _PATCHES // side for side in (height, width))
        return patches[:, rows][:, :, columns]


def _of_article(network: Network) -> BuiltInModel:
    def make(keras: Any) -> Any:
        *layers, last = network.make(keras)
        last.activation = keras.activations.linear
        images = [keras.Input(network.shape, dtype="uint8"), keras.layers.Rescaling(1 / 255)]
        return keras.Sequential([*images, *layers, last, keras.layers.Activation("softmax", dtype="float32")])

    return BuiltInModel(
        make,
        network.shape,
        network.flops_per_sample / 3,
        network.weights,
        start_s=1.0,
    )


def _application(name: str, side: int, multiply_adds: float, weights: float, start_s: float) -> BuiltInModel:
    shape = (side, side, 3)
    scale, offset = (1.0, 0.0) if name.startswith("EfficientNet") else (1 / 127.5, -1.0)  # that one scales by itself

    def make(keras: Any) -> Any:
        body = getattr(keras.applications, name)(weights=None, input_shape=shape, classifier_activation=None)
        images = keras.Input(shape, dtype="uint8")
        logits = body(keras.layers.Rescaling(scale, offset=offset)(images))
        return keras.Model(images, keras.layers.Activation("softmax", dtype="float32")(logits))

    return BuiltInModel(make, shape, 2e9 * multiply_adds, int(weights * 1e6), start_s)


MODELS: dict[ModelName, BuiltInModel] = {
    "mnist_cnn": _of_article(DIGITS),
    "cifar10_cnn": _of_article(PHOTOGRAPHS),
    "mobilenet_v2": _application("MobileNetV2", 224, 0.30, 3.5, 4.0),
    "efficientnet_b0": _application("EfficientNetB0", 224, 0.39, 5.3, 6.0),
    "resnet50": _application("ResNet50", 224, 3.86, 25.6, 4.0),
    "inception_v3": _application("InceptionV3", 299, 5.71, 23.9, 7.0),
    "vgg16": _application("VGG16", 224, 15.47, 138.4, 3.0),
}
