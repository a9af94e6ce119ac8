"""The ladder of exploration rates: its values, and that any number of environments is spread over it."""

from __future__ import annotations

import numpy as np
import pytest

from seedrl_core.config import load_settings
from seedrl_core.errors import ConfigError
from seedrl_learner.rl.exploration import epsilon_ladder


@pytest.mark.parametrize("levels", [1, 2, 8, 64])
def test_rates_are_those_of_ape_x(levels: int) -> None:
    """0.4^(1 + 7 i / (N - 1)) for each i once, the largest first."""
    rates = epsilon_ladder(levels, 0.4, 7.0)
    expected = [0.4 ** (1 + 7 * i / max(1, levels - 1)) for i in range(levels)]
    assert sorted(rates, reverse=True) == pytest.approx(expected)
    assert rates[0] == 0.4


@pytest.mark.parametrize("environments", [1, 2, 4, 8, 16, 32, 64])
def test_the_first_environments_are_spread_evenly_over_the_ladder(environments: int) -> None:
    """The first 2^k of 64 rates are every (64 / 2^k)-th step of the ladder."""
    rates = epsilon_ladder(64, 0.4, 7.0)[:environments]
    steps = (np.log(rates) / np.log(0.4) - 1) / 7 * 63
    np.testing.assert_allclose(sorted(steps), np.arange(environments) * 64 / environments, atol=1e-9)


@pytest.mark.parametrize("levels", [-4, 0, 3, 48])
def test_the_number_of_levels_is_a_power_of_two(levels: int) -> None:
    """Anything else is refused, in the configuration with a sentence."""
    with pytest.raises(AssertionError, match="power of two"):
        epsilon_ladder(levels, 0.4, 7.0)
    with pytest.raises(ConfigError, match="epsilon_levels: .*(power of two|greater than or equal to 1)"):
        load_settings(None, {"learner.r2d2.epsilon_levels": levels})
