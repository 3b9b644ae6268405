import pytest
from PIL import Image

from dyno.bench.registry import validate_params, workload
from dyno.bench.workloads.fashion_mnist_cnn import CLOTHES, FashionMnistCnnParams
from tests.running import started

FASHION = workload("fashion_mnist_cnn")
TINY = {
    "data": "sample",
    "jit_compile": False,
    "batch_size": 16,
    "epochs": 2,
    "train_samples": 96,
    "test_samples": 40,
    "recognise": 7,
}


@pytest.mark.verify
def test_flops_match_tensorflow_s_count_of_the_graph(tensorflow, graph_flops):
    assert graph_flops(CLOTHES.model(tensorflow.keras, 1e-3, False)) == CLOTHES.flops_per_sample
    assert CLOTHES.flops_per_sample == pytest.approx(493e6, rel=0.01)


def test_layers_and_defaults_match_the_reference(tensorflow):
    model = CLOTHES.model(tensorflow.keras, 1e-3, False)
    kinds = [type(layer).__name__ for layer in model.layers]
    block = ["BatchNormalization", "Conv2D", "MaxPooling2D", "Dropout"]
    assert kinds == ["Rescaling", *block * 3, "Flatten", "Dense", "Dropout", "Dense"]
    convolutions = [layer for layer in model.layers if type(layer).__name__ == "Conv2D"]
    assert [(layer.filters, layer.kernel_size, layer.activation.__name__) for layer in convolutions] == [
        (64, (5, 5), "elu"),
        (128, (5, 5), "elu"),
        (256, (5, 5), "elu"),
    ]
    assert [layer.rate for layer in model.layers if type(layer).__name__ == "Dropout"] == [0.25, 0.25, 0.25, 0.5]
    defaults = FashionMnistCnnParams()
    assert (defaults.batch_size, defaults.epochs, defaults.learning_rate) == (1024, 15, 1e-3)
    assert FASHION.flops(defaults) == 1024 * CLOTHES.flops_per_sample


@pytest.mark.verify
def test_it_trains_on_clothes_and_names_the_wrong_ones(context, tmp_path):
    training = started(FASHION.build(validate_params(FASHION, TINY), context(artifacts=tmp_path)))
    found = training.complete(0.0, 0.0)
    assert (found.data.name, found.data.kind) == ("fashion-mnist", "sample")
    assert found.accuracy == pytest.approx(1 - found.wrong / 40)
    assert found.test["loss"] > 0
    details = training.verify().details
    assert len(details["wrong_images"]) == min(found.wrong, 32)
    recognised = details["recognised"]
    assert recognised["index"] == 7
    assert max(recognised["probabilities"], key=recognised["probabilities"].get) == recognised["predicted_name"]
    assert sum(recognised["probabilities"].values()) == pytest.approx(1, abs=1e-4)
    with Image.open(tmp_path / "wrong.png") as picture:
        assert picture.format == "PNG"
