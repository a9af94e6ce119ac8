"""Action spaces as agents see them: leaves of the environment on one side, distributions and indices on the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import tensorflow as tf

from seedrl_core.errors import ConfigError
from seedrl_core.spec import ACTION_MASK, EnvironmentSpec, TensorSpec
from seedrl_learner.rl.distributions import MASKED, Categorical, Distribution, Product, SquashedGaussian, reshape_last

MAX_PARAMETERS = 1 << 16
# Of choices that differ in size: each has a part of the graph, and all are filled up to the widest.
MAX_UNEQUAL_CHOICES = 1 << 12
MAX_PADDED_PARAMETERS = 1 << 20


@dataclass(frozen=True)
class DiscreteActions:
    """One integer leaf without dimensions, for algorithms with a value an action: indices from 0."""

    leaf: TensorSpec
    start: int
    num_actions: int

    @classmethod
    def of(cls, spec: EnvironmentSpec, agent: str) -> DiscreteActions:
        """The action space of `spec`; ConfigError, naming the agent that asks, when it is another kind."""
        leaf = spec.action[0]
        if len(spec.action) > 1 or not leaf.is_integer or leaf.shape:
            got = ", ".join(leaf.describe() for leaf in spec.action)
            raise ConfigError(f"action space: agent {agent} expects one integer of shape (), got {got}")
        num_actions = int(leaf.high[0]) - int(leaf.low[0]) + 1
        if not 1 <= num_actions <= MAX_PARAMETERS:
            raise ConfigError(f"{leaf.path}: expected 1 to {MAX_PARAMETERS} actions, got {num_actions}")
        return cls(leaf, int(leaf.low[0]), num_actions)

    def to_index(self, action: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """The environment's action leaves [...] as int32 indices [...]."""
        return tf.cast(tf.cast(action[0], tf.int64) - self.start, tf.int32)

    def features(self, action: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """The environment's action leaves [...] as inputs of a network, one-hot [..., num_actions] float32."""
        return tf.one_hot(self.to_index(action), self.num_actions)

    def from_index(self, index: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Int32 indices [...] as the environment's action leaves [...]."""
        return (tf.cast(tf.cast(index, tf.int64) + self.start, self.leaf.dtype.name),)


class ActionLeaf(Protocol):
    """One leaf of the action: between the environment's values [..., *shape] and what its distribution samples.

    Attributes:
      distribution: the family of the policy over this leaf.
      num_features: size of `features`.
      stored: what has to be stored beside the environment's value to know what was sampled; None when nothing.
      is_one_choice: whether the distribution's parameters are the logits of one choice.
    """

    distribution: Distribution
    num_features: int
    stored: TensorSpec | None
    is_one_choice: bool

    def value(self, sampled: tf.Tensor) -> tf.Tensor:
        """Sampled [..., k] -> the environment's value [..., *shape]."""

    def sampled(self, value: tf.Tensor, stored: tf.Tensor | None) -> tf.Tensor:
        """The inverse, from the environment's value and what was stored with it."""

    def features(self, value: tf.Tensor) -> tf.Tensor:
        """The environment's value as inputs of a network, [..., num_features] float32."""


class IntegerLeaf:
    """Discrete, MultiDiscrete, MultiBinary or an integer Box: one choice an element."""

    stored: TensorSpec | None = None

    def __init__(self, leaf: TensorSpec) -> None:
        self._leaf = leaf
        _check_size(leaf)
        low, high = leaf.bounds
        sizes = [int(size) for size in high - low + 1]
        if min(sizes) < 1 or sum(sizes) > MAX_PARAMETERS:
            raise ConfigError(
                f"{leaf.path}: expected low <= high and at most {MAX_PARAMETERS} values, counted over all elements, "
                f"got {sum(sizes)}"
            )
        padded = len(sizes) * max(sizes)
        if len(set(sizes)) > 1 and (len(sizes) > MAX_UNEQUAL_CHOICES or padded > MAX_PADDED_PARAMETERS):
            raise ConfigError(
                f"{leaf.path}: of choices that differ in size expected at most {MAX_UNEQUAL_CHOICES}, and "
                f"{MAX_PADDED_PARAMETERS} values when all are as many as the most, got {len(sizes)} and {padded}"
            )
        self.distribution: Distribution = Categorical(sizes)
        self.num_features = sum(sizes)
        self.is_one_choice = len(sizes) == 1
        self._low = low.astype(np.int64)
        self._begin = np.cumsum([0, *sizes[:-1]]).astype(np.int32)

    def value(self, sampled: tf.Tensor) -> tf.Tensor:
        """See ActionLeaf."""
        value = tf.cast(sampled, tf.int64) + self._low
        return tf.cast(reshape_last(value, self._leaf.shape), self._leaf.dtype.name)

    def sampled(self, value: tf.Tensor, stored: tf.Tensor | None = None) -> tf.Tensor:
        """Indices from 0."""
        flat = reshape_elements(value, self._leaf)
        return tf.cast(tf.cast(flat, tf.int64) - self._low, tf.int32)

    def features(self, value: tf.Tensor) -> tf.Tensor:
        """One-hot for each element, one after the other."""
        one_hot = tf.one_hot(self.sampled(value) + self._begin, self.num_features)
        return tf.reduce_max(one_hot, axis=-2)


class BoxLeaf:
    """A bounded Box of floats: Gaussians squashed between the bounds. What was sampled before that is stored."""

    is_one_choice = False

    def __init__(self, leaf: TensorSpec) -> None:
        self._leaf = leaf
        _check_size(leaf)
        low, high = leaf.bounds
        with np.errstate(over="ignore", invalid="ignore"):
            extent = np.float32(high) - np.float32(low)
        if not np.isfinite(extent).all() or not (extent > 0).all():
            raise ConfigError(
                f"{leaf.path}: expected finite bounds for a continuous action, low < high, got low {leaf.low[:9]} and "
                f"high {leaf.high[:9]} (none means unbounded)"
            )
        self._squash = SquashedGaussian(low.tolist(), high.tolist())
        self._low, self._high = low.astype(leaf.dtype), high.astype(leaf.dtype)
        self.distribution: Distribution = self._squash
        self.num_features = leaf.size
        self.stored: TensorSpec | None = TensorSpec(f"{leaf.path}/sampled", np.dtype(np.float32), (leaf.size,))

    def value(self, sampled: tf.Tensor) -> tf.Tensor:
        """See ActionLeaf. Never outside of the bounds, also after rounding."""
        value = tf.cast(self._squash.squash(sampled), self._leaf.dtype.name)
        return reshape_last(tf.clip_by_value(value, self._low, self._high), self._leaf.shape)

    def sampled(self, value: tf.Tensor, stored: tf.Tensor | None) -> tf.Tensor:
        """What was stored."""
        assert stored is not None
        return stored

    def features(self, value: tf.Tensor) -> tf.Tensor:
        """Scaled to -1..1."""
        return self._squash.relative(tf.cast(reshape_elements(value, self._leaf), tf.float32))


def _check_size(leaf: TensorSpec) -> None:
    if leaf.size > MAX_PARAMETERS:
        raise ConfigError(f"{leaf.path}: expected at most {MAX_PARAMETERS} elements of an action, got {leaf.size}")


@dataclass(frozen=True)
class _Mask:
    """The observation leaf that masks an action leaf, and its number among the observation's leaves."""

    index: int
    leaf: TensorSpec

    def allowed(self, observation: Sequence[tf.Tensor]) -> tf.Tensor:
        """[..., size] bool."""
        allowed = reshape_elements(observation[self.index], self.leaf) != 0
        return allowed | ~tf.reduce_any(allowed, axis=-1, keepdims=True)


class ActionSpace:
    """All leaves of an environment's action, and the masks that its observation has for them.

    Attributes:
      distribution: of the policy over all leaves.
      num_features: size of `features`.
      stored: what inference has to store beside parameters and actions, see `stored_of`.
    """

    def __init__(self, spec: EnvironmentSpec) -> None:
        """Raises ConfigError, naming the leaf, for actions or masks that cannot be handled."""
        self._leaves: list[ActionLeaf] = [
            IntegerLeaf(leaf) if leaf.is_integer else BoxLeaf(leaf) for leaf in spec.action
        ]
        self.distribution = Product([leaf.distribution for leaf in self._leaves])
        self.num_features = sum(leaf.num_features for leaf in self._leaves)
        self.stored = tuple(leaf.stored for leaf in self._leaves if leaf.stored is not None)
        self._masks = _find_masks(spec, self._leaves)

    def values(self, sampled: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        """What was sampled for each leaf, as the environment's action leaves."""
        return tuple(leaf.value(x) for leaf, x in zip(self._leaves, sampled, strict=True))

    def stored_of(self, sampled: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        """The part of what was sampled that the environment's values do not tell, in the order of `stored`."""
        return tuple(x for leaf, x in zip(self._leaves, sampled, strict=True) if leaf.stored is not None)

    def sampled(self, values: Sequence[tf.Tensor], stored: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        """What was sampled for each leaf, from the environment's action leaves and what was stored."""
        remaining = iter(stored)
        return tuple(
            leaf.sampled(value, next(remaining) if leaf.stored is not None else None)
            for leaf, value in zip(self._leaves, values, strict=True)
        )

    def features(self, values: Sequence[tf.Tensor]) -> tf.Tensor:
        """The environment's action leaves as inputs of a network, [..., num_features] float32."""
        return tf.concat([leaf.features(value) for leaf, value in zip(self._leaves, values, strict=True)], axis=-1)

    def probabilities(self, parameters: tf.Tensor) -> tf.Tensor:
        """Of each action [N, A] where it is a single Discrete one; [N, 0] for other actions."""
        is_discrete = len(self._leaves) == 1 and self._leaves[0].is_one_choice
        return tf.nn.softmax(parameters) if is_discrete else parameters[:, :0]

    def mask(self, parameters: tf.Tensor, observation: Sequence[tf.Tensor]) -> tf.Tensor:
        """Parameters under which actions that the observation's masks forbid have probability 0, or the least value.

        A mask that forbids every value of its leaf, as after an episode's end, has no effect.

        Args:
          parameters: [..., distribution.num_parameters], or the values of a Discrete action.
          observation: all leaves [..., *shape], with the same leading dimensions.
        """
        if not any(self._masks):
            return parameters
        allowed = [
            mask.allowed(observation) if mask else tf.ones_like(own, tf.bool)
            for mask, own in zip(self._masks, self.distribution.split(parameters), strict=True)
        ]
        return tf.where(tf.concat(allowed, axis=-1), parameters, MASKED)


def reshape_elements(value: tf.Tensor, leaf: TensorSpec) -> tf.Tensor:
    """A leaf [..., *shape] as [..., size]."""
    leading = value.shape.rank - len(leaf.shape)
    return tf.reshape(value, [*(-1 if size is None else size for size in value.shape[:leading]), leaf.size])


def _find_masks(spec: EnvironmentSpec, leaves: Sequence[ActionLeaf]) -> list[_Mask | None]:
    """The mask of each action leaf."""
    found = {leaf.path: _Mask(index, leaf) for index, leaf in enumerate(spec.observation) if leaf.is_action_mask}
    masks: list[_Mask | None] = []
    for action, leaf in zip(spec.action, leaves, strict=True):
        name = action.path.removeprefix("action").strip("/")
        mask = found.pop(f"{ACTION_MASK}/{name}" if name else ACTION_MASK, None)
        masks.append(mask)
        size = leaf.distribution.num_parameters
        if mask and not (action.is_integer and mask.leaf.is_integer and mask.leaf.size == size):
            raise ConfigError(
                f"{mask.leaf.path}: expected an integer or boolean for each value of an integer action, got "
                f"{mask.leaf.describe()} for {action.describe()}"
            )
    if found:
        names = ", ".join(leaf.path for leaf in spec.action)
        raise ConfigError(f"{min(found)}: expected a mask named like an action leaf ({names})")
    return masks
