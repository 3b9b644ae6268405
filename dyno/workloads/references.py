"""Published figures that results are compared with: the articles, their dates and their hardware."""

from __future__ import annotations

from dataclasses import dataclass

from dyno.models.result import Reference

CPU, GPU = "CPU (Colab)", "GPU (Colab)"
TPU = "TPU (Colab)"  # which version isn't stated; Colab lent boards of v2 then
TPU_V2 = "TPU v2 board (Colab)"  # the only article that states it is LABORATORY


@dataclass(frozen=True)
class Article:
    title: str
    year: str

    def figure(self, hardware: str, metric: str, value: float | None, unit: str, doubt: str | None = None) -> Reference:
        """One that it reports, of `hardware` in its own words; without a value where it has none to report."""
        return Reference(
            title=self.title, year=self.year, hardware=hardware, metric=metric, value=value, unit=unit, doubt=doubt
        )


HARNESS = Article("How to harness the Powers of the Cloud TPU?", "2018-19")
INTRODUCTION = Article("An introduction to Google Colab TPUs with the IMDB reviews", "2019")
NOTEBOOK = Article("Why TPUs? (a notebook)", "2018-19")
STEPS = Article("Step-by-Step Use of Google Colab's Free TPU", "2018-19")
LABORATORY = Article("Google's free tensor processors in the cloud laboratory", "2018-19")
ELSEWHERE = Article("Published elsewhere, in none of the articles", "2018-21")
