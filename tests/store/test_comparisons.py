"""How long a comparison is kept."""

import pytest

from dyno.store.jobs import _life_ms


@pytest.mark.parametrize(
    ("lives_ms", "life_ms"), [([70, 60], 60), ([-1, 60], 60), ([0, -1], 1), ([0, 60], 1), ([-1, -1], None)]
)
def test_a_comparison_expires_with_the_first_of_its_jobs(lives_ms, life_ms):
    assert _life_ms(lives_ms) == life_ms
