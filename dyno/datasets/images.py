"""What every set of labelled images is loaded as."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dyno.models.result import DataOrigin


@dataclass(frozen=True)
class Images:
    """Images uint8 (samples, height, width, channels), labels uint8 (samples,) that index `classes`."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]
    classes: tuple[str, ...]
    origin: DataOrigin

    def limited(self, train_samples: int | None, test_samples: int | None) -> Images:
        """The first so many of each; None or more than there are: all."""
        train, test = self.train_images[:train_samples], self.test_images[:test_samples]
        counts = {"train_samples": len(train), "test_samples": len(test)}
        return replace(
            self,
            train_images=train,
            train_labels=self.train_labels[:train_samples],
            test_images=test,
            test_labels=self.test_labels[:test_samples],
            origin=self.origin.model_copy(update=counts),
        )
