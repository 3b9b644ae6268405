"""Published reference figures: the articles, their dates and their hardware."""

from dataclasses import dataclass

from dyno.models.result import Reference

CPU, GPU = "CPU (Colab)", "GPU (Colab)"
TPU = "TPU (Colab)"  # version not stated; Colab offered v2 boards at that time
TPU_V2 = "TPU v2 board (Colab)"  # only LABORATORY states the version


@dataclass(frozen=True)
class Article:
    title: str
    year: str

    def figure(self, hardware: str, metric: str, value: float | None, unit: str, doubt: str | None = None) -> Reference:
        """A figure from the article. `hardware` is in the article's words; `value` is None if none is reported."""
        return Reference(
            title=self.title, year=self.year, hardware=hardware, metric=metric, value=value, unit=unit, doubt=doubt
        )


HARNESS = Article("How to harness the Powers of the Cloud TPU?", "2018-19")
INTRODUCTION = Article("An introduction to Google Colab TPUs with the IMDB reviews", "2019")
NOTEBOOK = Article("Why TPUs? (a notebook)", "2018-19")
STEPS = Article("Step-by-Step Use of Google Colab's Free TPU", "2018-19")
LABORATORY = Article("Google's free tensor processors in the cloud laboratory", "2018-19")
ELSEWHERE = Article("Published elsewhere, in none of the articles", "2018-21")
