"""Gymnasium spaces as leaves: their specs, and values from and to an environment. It knows no environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from seedrl_core.errors import BadRequest, EnvironmentFailed
from seedrl_core.spec import DTYPES, Array, TensorSpec

# A MultiBinary observation of so many elements travels as bits: below that a kilobyte is not worth it.
LEAST_BITS = 1024
_SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these"
_Key = str | int


@dataclass(frozen=True)
class _Leaf:
    """A leaf of a space, and the keys that lead to it from a value of the whole space."""

    keys: tuple[_Key, ...]
    space: Any
    spec: TensorSpec


class ObservationSpace:
    """The leaves of an observation space.

    Floats of other sizes than 32 bits travel as float32, large MultiBinary leaves as bits.
    """

    def __init__(self, space: Any) -> None:
        """Raises BadRequest, naming the leaf, for a space that is not supported."""
        self._leaves = tuple(map(_packed, _leaves(space, "observation", lambda dtype: np.dtype(np.float32))))
        self.specs = tuple(leaf.spec for leaf in self._leaves)

    def write(self, value: Any, rows: Sequence[Array], env: int) -> None:
        """Copies one environment's observation into row `env` of each leaf's array [N, *shape].

        Raises:
          EnvironmentFailed: a leaf is missing, has another shape or cannot become the leaf's dtype.
        """
        for leaf, row in zip(self._leaves, rows, strict=True):
            part = value
            for key in leaf.keys:
                part = _item(part, key, leaf.spec)
            array = part if isinstance(part, np.ndarray) else np.asarray(part)
            bits, path = leaf.spec.bits, leaf.spec.path
            shape, dtype = (bits, np.dtype(np.int8)) if bits else (leaf.spec.shape, leaf.spec.dtype)
            if array.shape != shape or not np.can_cast(array.dtype, dtype, "same_kind"):
                raise EnvironmentFailed(f"{path}: expected {dtype.name} {shape}, got {array.dtype.name} {array.shape}")
            row[env] = np.packbits(array) if bits else array


class ActionSpace:
    """The leaves of an action space. Floats keep their size where they can: a value must not leave its bounds."""

    def __init__(self, space: Any) -> None:
        """Raises BadRequest, naming the leaf, for a space that is not supported."""
        kept = (np.dtype(np.float32), np.dtype(np.float64))
        self._leaves = tuple(_leaves(space, "action", lambda dtype: dtype if dtype in kept else kept[0]))
        self.specs = tuple(leaf.spec for leaf in self._leaves)
        self._build = _builder(space)

    def values(self, action: Sequence[Array]) -> list[Any]:
        """The actions [N, *shape] of each leaf as N values of the space, which the environments may keep and change."""
        columns = [_column(leaf.space, values) for leaf, values in zip(self._leaves, action, strict=True)]
        return [self._build(iter(row)) for row in zip(*columns, strict=True)]


def _packed(leaf: _Leaf) -> _Leaf:
    """A leaf as it travels: one of many bits as bits, any other as it is."""
    spec = leaf.spec
    if not isinstance(leaf.space, spaces.MultiBinary) or spec.size < LEAST_BITS or spec.is_action_mask:
        return leaf
    return replace(leaf, spec=TensorSpec.of_bits(spec.path, spec.shape))


def _leaves(space: Any, path: str, float_dtype: Callable[[np.dtype[Any]], np.dtype[Any]]) -> Iterator[_Leaf]:
    """All leaves below a space, in the order of its keys."""
    children = _children(space)
    if children is None:
        yield _Leaf((), space, _spec(space, path, float_dtype))
        return
    if not children:
        raise BadRequest(f"{path}: expected at least one space in it, got {space}")
    for key, child in children:
        for leaf in _leaves(child, f"{path}/{key}", float_dtype):
            yield _Leaf((key, *leaf.keys), leaf.space, leaf.spec)


def _children(space: Any) -> list[tuple[_Key, Any]] | None:
    """Keys and spaces in a Dict or Tuple; None for other spaces."""
    if isinstance(space, spaces.Dict):
        return list(space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return list(enumerate(space.spaces))
    return None


def _spec(space: Any, path: str, float_dtype: Callable[[np.dtype[Any]], np.dtype[Any]]) -> TensorSpec:
    match space:
        case spaces.Box():
            dtype = np.dtype(space.dtype)
            if dtype.kind == "f":
                dtype = float_dtype(dtype)
            low, high = _bounds(space.low, dtype, -np.inf), _bounds(space.high, dtype, np.inf)
        case spaces.Discrete():
            dtype = np.dtype(np.int64)
            low, high = (float(space.start),), (float(space.start + space.n - 1),)
        case spaces.MultiDiscrete():
            dtype = np.dtype(space.dtype)
            low = _bounds(space.start, dtype, -np.inf)
            high = _bounds(space.start + space.nvec - 1, dtype, np.inf)
        case spaces.MultiBinary():
            dtype, low, high = np.dtype(np.int8), (0.0,), (1.0,)
        case _:
            raise BadRequest(f"{path}: expected {_SUPPORTED}, got {space}")
    if dtype.name not in DTYPES:
        raise BadRequest(f"{path}: expected a dtype of {', '.join(DTYPES)}, got {dtype.name}")
    return TensorSpec(path, dtype, tuple(space.shape), low, high)


def _bounds(values: Array, dtype: np.dtype[Any], unbounded: float) -> tuple[float, ...]:
    """Bounds as in TensorSpec: none where all are unbounded, one where all are the same."""
    flat = np.asarray(values, dtype).reshape(-1).tolist()
    if not flat or all(value == unbounded for value in flat):
        return ()
    return (float(flat[0]),) if len(set(flat)) == 1 else tuple(float(value) for value in flat)


def _item(value: Any, key: _Key, spec: TensorSpec) -> Any:
    try:
        return value[key]
    except (KeyError, IndexError, TypeError) as error:
        got = f"keys {sorted(map(str, value))}" if isinstance(value, dict) else type(value).__name__
        raise EnvironmentFailed(f"{spec.path}: expected a value under {key!r}, got {got}") from error


def _column(space: Any, values: Array) -> list[Any]:
    """A leaf's values [N, *shape] as its space has them: Python ints for Discrete, else arrays that may be changed."""
    if isinstance(space, spaces.Discrete):
        integers: list[Any] = values.tolist()
        return integers
    return list(np.array(values, space.dtype))


def _builder(space: Any) -> Callable[[Iterator[Any]], Any]:
    """A function from the leaves of one value, in order, to the value."""
    children = _children(space)
    if children is None:
        return next
    builders = [(key, _builder(child)) for key, child in children]
    if isinstance(space, spaces.Dict):
        return lambda leaves: {key: build(leaves) for key, build in builders}
    return lambda leaves: tuple(build(leaves) for _, build in builders)
