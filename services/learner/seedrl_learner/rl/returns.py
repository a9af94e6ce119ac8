"""Returns of a sequence of transitions, bootstrapped with values: pure functions of [T, B] tensors."""

from __future__ import annotations

import tensorflow as tf


def n_step_return(*, reward: tf.Tensor, discount: tf.Tensor, value: tf.Tensor, valid: tf.Tensor, n: int) -> tf.Tensor:
    """n-step bootstrapped returns of T transitions; transition t goes from x_t to x_{t+1}.

    The Bellman target of R2D2 (Kapturowski et al., ICLR 2019, section 2.3), in recursive form:

        G^0_t = V(x_t),    G^k_t = r_t + discount_t G^{k-1}_{t+1},    G^k_T = V(x_T).

    It looks n transitions ahead, but not over the end of the sequence and not over an invalid transition (from an
    episode's last observation into a reset): there it bootstraps earlier, from the value of the last observation it may
    use. So a truncated episode bootstraps from its final observation, and a terminated one not at all (discount 0).

    Args:
      reward: [T, B] float32, earned by transition t.
      discount: [T, B] float32, gamma, or 0 where x_{t+1} is terminal.
      value: [T + 1, B] float32, V(x_t).
      valid: [T, B] bool; what reward and discount hold at invalid transitions does not matter.
      n: transitions to look ahead, at least 1.

    Returns:
      [T, B] float32; V(x_t) at invalid transitions.
    """
    length = reward.shape[0]
    for x, dtype, steps in (
        (reward, tf.float32, length),
        (discount, tf.float32, length),
        (value, tf.float32, length + 1),
        (valid, tf.bool, length),
    ):
        assert x.shape.rank == 2, f"expected [T, B], got {x.shape}"
        assert (x.dtype, x.shape[0]) == (dtype, steps), (
            f"expected {dtype.name} [{steps}, B], got {x.dtype.name} {x.shape}"
        )
    ahead = value
    for _ in range(n):
        ahead = tf.concat([tf.where(valid, reward + discount * ahead[1:], value[:-1]), value[-1:]], axis=0)
    return ahead[:-1]
