"""V-trace: off-policy corrected value targets and advantages (IMPALA, arXiv 1802.01561, section 4.1)."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf


class VTrace(NamedTuple):
    """Value targets vs and policy-gradient advantages, [T, B] float32 each; no gradient flows through them."""

    vs: tf.Tensor
    pg_advantage: tf.Tensor


def vtrace(
    *,
    rho: tf.Tensor,
    discount: tf.Tensor,
    reward: tf.Tensor,
    value: tf.Tensor,
    valid: tf.Tensor,
    trace_lambda: float = 1.0,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
    clip_pg_rho: float = 1.0,
) -> VTrace:
    """V-trace targets of T transitions; transition t goes from x_t to x_{t+1}.

    Equation 1, in the recursive form of remark 1, with the traces of remark 2:

        delta_t = min(clip_rho, rho_t) (r_t + discount_t V(x_{t+1}) - V(x_t))
        c_t     = trace_lambda min(clip_c, rho_t)
        vs_t    = V(x_t) + delta_t + discount_t c_t (vs_{t+1} - V(x_{t+1})),    vs_T = V(x_T)

    and the advantage of section 4.2, lambda-weighted so that it is generalized advantage estimation on-policy:

        q_t = r_t + discount_t (trace_lambda vs_{t+1} + (1 - trace_lambda) V(x_{t+1}))
        A_t = min(clip_pg_rho, rho_t) (q_t - V(x_t))

    An invalid transition, the one from an episode's last observation into a reset, has delta = c = A = 0: its target
    is V(x_t), so a truncated episode bootstraps from its final observation, and nothing leaks out of the next one.

    Args:
      rho: [T, B] float32, pi(a_t | x_t) / mu(a_t | x_t).
      discount: [T, B] float32, gamma, or 0 where x_{t+1} is terminal.
      reward: [T, B] float32, earned by transition t.
      value: [T + 1, B] float32, V(x_t).
      valid: [T, B] bool; what the other arguments hold at invalid transitions does not matter.
      trace_lambda: lambda of the traces.
      clip_rho: rho bar.
      clip_c: c bar.
      clip_pg_rho: clip of the advantage's importance weight.

    Returns:
      Targets and advantages.
    """
    length = rho.shape[0]
    for x, dtype, steps in (
        (rho, tf.float32, length),
        (discount, tf.float32, length),
        (reward, tf.float32, length),
        (value, tf.float32, length + 1),
        (valid, tf.bool, length),
    ):
        assert x.shape.rank == 2, f"expected [T, B], got {x.shape}"
        assert (x.dtype, x.shape[0]) == (dtype, steps), (
            f"expected {dtype.name} [{steps}, B], got {x.dtype.name} {x.shape}"
        )

    v_t, v_tp1 = value[:-1], value[1:]
    delta = tf.where(valid, tf.minimum(clip_rho, rho) * (reward + discount * v_tp1 - v_t), 0.0)
    trace = tf.where(valid, discount * trace_lambda * tf.minimum(clip_c, rho), 0.0)
    # Laid out in the graph: T is small, and a loop in TensorFlow costs more than its content.
    vs_minus_v = [tf.zeros_like(value[0])]
    for t in reversed(range(length)):
        vs_minus_v.append(delta[t] + trace[t] * vs_minus_v[-1])
    vs_minus_v_tp1 = tf.stack(vs_minus_v[-2::-1])
    vs = v_t + tf.stack(vs_minus_v[:0:-1])
    q = reward + discount * (v_tp1 + trace_lambda * vs_minus_v_tp1)
    pg_advantage = tf.where(valid, tf.minimum(clip_pg_rho, rho) * (q - v_t), 0.0)
    return VTrace(tf.stop_gradient(vs), tf.stop_gradient(pg_advantage))
