"""Exploration of many environments at once: each explores at a rate of its own."""

from __future__ import annotations


def epsilon_ladder(levels: int, base: float, exponent: float) -> list[float]:
    """The rates of Ape-X (arXiv 1803.00933, section 4): base^(1 + exponent i / (levels - 1)), i = 0 .. levels - 1.

    They come in bit-reversed order of i, so that the first n of them are spread over the whole range for every n: it
    need not be known how many environments there will be.

    Args:
      levels: a power of two.
      base: the largest rate, 0..1.
      exponent: the smallest rate is base^(1 + exponent).
    """
    assert levels & (levels - 1) == 0 < levels, f"expected a power of two, got {levels}"
    bits = levels.bit_length() - 1
    order = [int(f"{i:0{bits}b}"[::-1], 2) if bits else 0 for i in range(levels)]
    return [base ** (1.0 + exponent * i / max(1, levels - 1)) for i in order]
