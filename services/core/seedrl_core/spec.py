"""Environment specs: the leaves of observations and actions, and the checks on them. Knows nothing of wire formats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from seedrl_core.errors import BadRequest, SpecMismatch

Array = npt.NDArray[Any]

MAX_LEAVES = 256
MAX_DIMENSIONS = 8
MAX_LEAF_ELEMENTS = 1 << 26
# The bounds of an integer action, which travel as float64, are exact below this.
MAX_INTEGER = 2.0**53
# The observation leaf that says which actions are allowed; below it, one for each leaf of a nested action.
ACTION_MASK = "observation/action_mask"
# The observation leaf that is a text: a number from 1 on for each word, in order, and 0 after the last.
INSTRUCTION = "observation/instruction"
DTYPES = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float32", "float64")


@dataclass(frozen=True)
class TensorSpec:
    """One leaf, without the environment dimension.

    Attributes:
      path: where it stands, e.g. "observation" or "observation/camera".
      dtype: element type, one of DTYPES.
      shape: shape of one environment's value.
      low, high: inclusive bounds: empty (unbounded), one value, or one an element in C order.
      bits: shape of the array of bits that the bytes of a uint8 leaf hold, eight each as from `np.packbits`; empty
        where they are what they are.
    """

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    bits: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Raises BadRequest, naming the leaf, when the description is not usable."""
        if not self.path or len(self.path) > 512:
            raise BadRequest(f"leaf path: expected 1 to 512 characters, got {len(self.path)}")
        if self.dtype.name not in DTYPES:
            raise BadRequest(f"{self.path}: expected a dtype of {', '.join(DTYPES)}, got {self.dtype.name}")
        _check_shape(self.path, self.shape)
        for name, bound in (("low", self.low), ("high", self.high)):
            if len(bound) not in (0, 1, self.size):
                raise BadRequest(f"{self.path}: expected 0, 1 or {self.size} values of {name}, got {len(bound)}")
            if any(math.isnan(value) for value in bound):
                raise BadRequest(f"{self.path}: {name} has a NaN")
        if self.low and self.high and (np.asarray(self.low) > np.asarray(self.high)).any():
            raise BadRequest(f"{self.path}: expected low <= high for every element")
        if self.bits:
            self._check_bits()

    @classmethod
    def of_bits(cls, path: str, shape: tuple[int, ...]) -> TensorSpec:
        """The leaf for an array of bits."""
        return cls(path, np.dtype(np.uint8), (_bytes_of_bits(shape),), bits=shape)

    @property
    def size(self) -> int:
        """Elements of one environment's value."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes of one environment's value."""
        return self.size * self.dtype.itemsize

    @property
    def is_integer(self) -> bool:
        """True for integer and bool leaves."""
        return self.dtype.kind in "iub"

    @property
    def is_action_mask(self) -> bool:
        """True for observation leaves that tell which actions are allowed."""
        return self.path == ACTION_MASK or self.path.startswith(f"{ACTION_MASK}/")

    @property
    def is_instruction(self) -> bool:
        """True for the observation leaf that has the words of an instruction."""
        return (
            self.path == INSTRUCTION
            and self.dtype.name in ("int32", "int64")
            and len(self.shape) == 1
            and set(self.low) == {0.0}
            and len(set(self.high)) == 1
        )

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Low and high of each element, [size] float64 each in C order; infinite where unbounded."""
        low, high = self.low or (-math.inf,), self.high or (math.inf,)
        return np.broadcast_to(low, self.size), np.broadcast_to(high, self.size)

    @property
    def unpacked(self) -> TensorSpec:
        """The leaf as a network gets it: for each bit a uint8, 0 or 255. Any other leaf is itself."""
        return TensorSpec(self.path, self.dtype, self.bits, (0.0,), (255.0,)) if self.bits else self

    def describe(self) -> str:
        """For people, e.g. `observation: uint8 (84, 84)`."""
        return f"{self.path}: {self.dtype.name} {self.shape}" + (f" of bits {self.bits}" if self.bits else "")

    def _check_bits(self) -> None:
        _check_shape(f"{self.path}: bits", self.bits)
        if self.is_action_mask:
            raise BadRequest(f"{self.path}: expected a byte for each value of an action mask, got bits {self.bits}")
        expected = (_bytes_of_bits(self.bits),)
        if self.dtype.name != "uint8" or self.shape != expected or self.low or self.high:
            bounds = " with bounds" if self.low or self.high else ""
            raise BadRequest(
                f"{self.path}: expected uint8 {expected} without bounds for bits {self.bits}, got {self.dtype.name} "
                f"{self.shape}{bounds}"
            )


def _check_shape(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) > MAX_DIMENSIONS or any(not 0 < size <= MAX_LEAF_ELEMENTS for size in shape):
        raise BadRequest(f"{name}: expected at most {MAX_DIMENSIONS} dimensions of positive size, got {shape}")
    if math.prod(shape) > MAX_LEAF_ELEMENTS:
        raise BadRequest(f"{name}: expected at most {MAX_LEAF_ELEMENTS} elements, got shape {shape}")


def _bytes_of_bits(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // 8)


@dataclass(frozen=True)
class EnvironmentSpec:
    """What an environment emits and accepts.

    Attributes:
      environment_id: name for people; not compared.
      observation, action: leaves in wire order, at least one of each.
      action_repeat: simulator frames a step.
      frame_stack: successive observations the environment's author advises to stack; 1 for none.
    """

    environment_id: str
    observation: tuple[TensorSpec, ...]
    action: tuple[TensorSpec, ...]
    action_repeat: int = 1
    frame_stack: int = 1

    def __post_init__(self) -> None:
        """Raises BadRequest when a part is missing or out of range."""
        for name, leaves in (("observation", self.observation), ("action", self.action)):
            if not 0 < len(leaves) <= MAX_LEAVES:
                raise BadRequest(f"spec: expected 1 to {MAX_LEAVES} {name} leaves, got {len(leaves)}")
        paths = [leaf.path for leaf in (*self.observation, *self.action)]
        if len(set(paths)) != len(paths):
            raise BadRequest(
                f"spec: expected distinct leaf paths, got {min(p for p in paths if paths.count(p) > 1)} twice"
            )
        for leaf in self.action:
            if leaf.bits:
                raise BadRequest(f"{leaf.path}: an action has no bits")
            if leaf.is_integer and not (leaf.low and leaf.high):
                raise BadRequest(f"{leaf.path}: an integer action needs low and high")
            if leaf.is_integer and not all(abs(value) < MAX_INTEGER for value in (*leaf.low, *leaf.high)):
                raise BadRequest(f"{leaf.path}: expected bounds of an integer action within +-{MAX_INTEGER:.0f}")
        if not 1 <= self.action_repeat <= 1000 or not 1 <= self.frame_stack <= 64:
            raise BadRequest(
                "spec: expected action_repeat in 1..1000 and frame_stack in 1..64, "
                f"got {self.action_repeat} and {self.frame_stack}"
            )

    @property
    def row_bytes(self) -> int:
        """Bytes of one environment's observation, bits unpacked, as a network gets them."""
        return sum(leaf.unpacked.num_bytes for leaf in self.observation)


def check_same_spec(expected: EnvironmentSpec, got: EnvironmentSpec) -> None:
    """Raises SpecMismatch that names the first differing leaf, what the learner expects and what it got."""
    for kind in ("observation", "action"):
        wanted: Sequence[TensorSpec] = getattr(expected, kind)
        given: Sequence[TensorSpec] = getattr(got, kind)
        for want, have in zip(wanted, given, strict=False):
            if (want.path, want.dtype, want.shape, want.bits) != (have.path, have.dtype, have.shape, have.bits):
                raise SpecMismatch(f"environment spec differs: expected {want.describe()}, got {have.describe()}")
            if (want.low, want.high) != (have.low, have.high):
                raise SpecMismatch(
                    f"environment spec differs: {want.path}: expected bounds {want.low}..{want.high}, "
                    f"got {have.low}..{have.high}"
                )
        if len(wanted) != len(given):
            raise SpecMismatch(
                f"environment spec differs: expected {kind} leaves {[leaf.path for leaf in wanted]}, "
                f"got {[leaf.path for leaf in given]}"
            )
    if expected.action_repeat != got.action_repeat:
        raise SpecMismatch(f"action_repeat: expected {expected.action_repeat}, got {got.action_repeat}")
