"""Text from a trained character model, one character at a time, each drawn by the probabilities of the model.

The model itself only reads windows. What writes is one step of its own layers, with their states handed on, compiled
by the framework: it costs a 100th of predicting a whole window for each character.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.workloads.contract import BuildContext

ALPHABET = 256  # characters are bytes


def write(model: Any, context: BuildContext, prompt: str, count: int, temperature: float, seed: int) -> str:
    """The prompt and `count` characters more. Bytes that are no UTF-8 show as U+FFFD.

    `temperature` 1 draws by the model's probabilities; towards 0, the likeliest gets all.
    """
    random = np.random.default_rng(seed)
    written = list(prompt.encode())
    reader = Reader(model, context)
    for character in written[:-1]:
        reader.read(character)
    for place in range(count):
        context.report("generation", place, count, "characters")
        chances = tempered(reader.read(written[-1]), temperature)
        written.append(int(random.choice(ALPHABET, p=chances)))
    return bytes(written).decode(errors="replace")


def tempered(chances: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    """chances ** (1 / temperature), summing to 1 again."""
    logits = np.log(chances.astype(np.float64) + 1e-30) / temperature
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


class Reader:
    """Reads one character after the other, and tells after each what the model expects next."""

    def __init__(self, model: Any, context: BuildContext) -> None:
        self._framework = context.framework
        embedding, *recurrent, dense = model.layers
        self._state = self._framework.array(
            np.zeros((2 * len(recurrent), 1, recurrent[0].units), np.float32), "float32"
        )
        ops = self._framework.keras.ops

        def step(character: Any, states: Any) -> tuple[Any, Any]:
            value, after = embedding(character), []
            for place, layer in enumerate(recurrent):
                value, states_of_layer = layer.cell(value, [states[2 * place], states[2 * place + 1]])
                after += states_of_layer
            return dense(value), ops.stack(after)

        self._step = self._framework.compile(step, self._character(0), self._state)

    def read(self, character: int) -> NDArray[np.float32]:
        """The probability of each character to come next, (256,)."""
        chances, self._state = self._step(self._character(character), self._state)
        found: NDArray[np.float32] = self._framework.numpy(chances)[0]
        return found

    def _character(self, character: int) -> Any:
        return self._framework.array(np.array([character], np.int32), "int32")
