"""The articles' figures, repeated by hand to catch typing errors."""

from dyno.bench.registry import registry

FIGURES: dict[str, set[tuple[str, float | None]]] = {
    "matmul": {
        *(("throughput", 0.47e12), ("throughput", 0.53e12), ("throughput", 15.70e12), ("throughput", 158.91e12)),
        *(("cold_throughput", 35.47e12), ("speed_up", 29), ("speed_up", 75), ("speed_up", 338)),
    },
    "mnist_cnn": {
        *(("epoch_time", seconds) for seconds in (6, 5, 4, 3, 2, 11)),
        *(("time_per_sample", seconds) for seconds in (94e-6, 82e-6, 79e-6, 97e-6, 58e-6, 37e-6)),
        ("wrong", 168),
    },
    "fashion_mnist_cnn": {("epoch_time", 7), *(("training_time", seconds) for seconds in (102, 196, 11_164))},
    "cifar10_cnn": {
        *(("epoch_time", 6), ("train_accuracy", 0.9006), ("accuracy", 0.8079), ("recognised_probability", 0.9817)),
    },
    "imdb_lstm": {
        *(("time_per_sample", 680e-6), ("epoch_time", 17), ("training_time", 300), ("accuracy", 0.83)),
        *(("time_per_sample", 12e-3), ("training_time", 9000), ("accuracy", 0.845), ("time_per_sample", None)),
    },
    "weather_gru": {
        *(("epoch_time", 42), ("epoch_time", 44), ("training_time", 432)),
        *(("first_epoch_time", 14), ("epoch_time", 5), ("training_time", 66), ("epoch_time", None)),
    },
    "resnet50": {("throughput", 2470), ("throughput", 1200), ("throughput", 3186), ("speed_up", 4)},
    "quantized_inference": {("size_float32", 91e6), ("size_int8", 23e6), ("speed_up", 25)},
    "device_info": {("cores", 8)},
}


def test_each_figure_matches_the_publication():
    published = {name: {(figure.metric, figure.value) for figure in registry()[name].references} for name in FIGURES}
    assert published == FIGURES


def test_an_article_is_of_one_year():
    of = {(figure.title, figure.year) for workload in registry().values() for figure in workload.references}
    assert len({title for title, _ in of}) == len(of) == 6


def test_a_tpu_s_version_is_stated_only_if_the_article_states_it():
    for workload in registry().values():
        for figure in workload.references:
            assert "v2" not in figure.hardware or figure.title.startswith(("Google's free", "Published elsewhere"))
