"""A torso of the user's own, named by module and function."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from seedrl_core.config import LearnerConfig
from seedrl_core.errors import ConfigError
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.agents import make_agent
from seedrl_learner.defaults import resolve

SPEC = EnvironmentSpec(
    "test",
    (TensorSpec("a", np.dtype(np.uint8), (4, 4), (0,), (9,)), TensorSpec("b", np.dtype(np.float32), (3,))),
    (TensorSpec("action", np.dtype(np.int64), (), (0,), (3,)),),
    frame_stack=2,
)
seen: list[Any] = []


class Sums(tf.Module):
    """Two features: the weighted sum of each leaf."""

    output_size = 2

    def __init__(self, leaves: tuple[TensorSpec, ...], seed: int) -> None:
        super().__init__()
        seen[:] = [leaves, seed]
        self.weight = tf.Variable(1.0)

    def __call__(self, leaves: tuple[tf.Tensor, ...]) -> tf.Tensor:
        sums = [tf.reduce_sum(tf.cast(leaf, tf.float32), axis=list(range(1, leaf.shape.rank))) for leaf in leaves]
        return self.weight * tf.stack(sums, axis=1)


class Wide(Sums):
    """Says something else than it does."""

    output_size = 3


def raising(leaves: Any, seed: int) -> Any:
    """Does not work."""
    raise ValueError("no weights found")


class Untrained(Sums):
    """Has nothing to train."""

    def __init__(self, leaves: tuple[TensorSpec, ...], seed: int) -> None:
        super().__init__(leaves, seed)
        self.weight = tf.constant(1.0)


@pytest.fixture(autouse=True)
def module() -> Iterator[None]:
    """A module `my_torsos` with all of them."""
    made: Any = types.ModuleType("my_torsos")
    parts: tuple[Callable[..., Any], ...] = (Sums, Wide, raising, Untrained)
    made.__dict__.update({part.__name__: part for part in parts})
    sys.modules["my_torsos"] = made
    yield
    del sys.modules["my_torsos"]


def make(torso: str) -> Any:
    """An agent with that torso."""
    return make_agent(resolve(LearnerConfig.model_validate({"network": {"torso": torso}}), SPEC), SPEC)


def test_it_gets_stacked_leaves_and_feeds_the_heads() -> None:
    """The leaves come with frames stacked and bounds kept; its variables are trained with the network's."""
    agent = make("my_torsos:Sums")
    leaves, _ = seen
    assert [(leaf.path, leaf.shape, leaf.high) for leaf in leaves] == [("a", (4, 4, 2), (9,)), ("b", (6,), ())]
    shapes = [variable.shape.as_list() for variable in agent.network.trainable_variables]
    assert [] in shapes
    assert [2, 4] in shapes


@pytest.mark.parametrize(
    ("torso", "message"),
    [
        ("no_such_module:build", "learner.network.torso: importing no_such_module failed: ModuleNotFoundError"),
        ("my_torsos:missing", "expected a function missing in my_torsos, got None"),
        ("my_torsos:raising", "my_torsos:raising failed: ValueError: no weights found"),
        ("my_torsos:Wide", r"shape \[rows, output_size=3\], got float32 \(1, 2\) for one row"),
        ("my_torsos:Untrained", "expected my_torsos:Untrained to return a tf.Module with trainable variables"),
    ],
)
def test_mistakes_are_one_clear_error(torso: str, message: str) -> None:
    """Each says what was expected and what was got."""
    with pytest.raises(ConfigError, match=message):
        make(torso)
