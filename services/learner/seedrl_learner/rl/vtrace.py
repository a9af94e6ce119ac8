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

    and the advantage of section 4.2, with lambda-weighted targets as in generalized advantage estimation:

        A_t = min(clip_pg_rho, rho_t) (r_t + discount_t (trace_lambda vs_{t+1} + (1 - trace_lambda) V(x_{t+1})) - V(x_t)),

    where vs_{t+1} alone stands for the bracket when t + 1 = T. An invalid transition, the one from an episode's last
    observation into a reset, has delta = c = A = 0: its target is V(x_t), so a truncated episode bootstraps there.

    Args:
      rho: [T, B] float32, pi(a_t | x_t) / mu(a_t | x_t).
      discount: [T, B] float32, gamma, or 0 where x_{t+1} is terminal.
      reward: [T, B] float32, earned by transition t.
      value: [T + 1, B] float32, V(x_t).
      valid: [T, B] bool; what the other arguments hold at invalid transitions does not matter.
      trace_lambda, clip_rho, clip_c, clip_pg_rho: lambda, rho bar, c bar and the clip of the advantage's weight.

    Returns:
      Targets and advantages.
    """
    for x in (rho, discount, reward, value):
        assert x.shape.rank == 2 and x.dtype == tf.float32, f"expected float32 [T, B], got {x.dtype} {x.shape}"
    assert valid.shape.rank == 2 and valid.dtype == tf.bool, f"expected bool [T, B], got {valid.dtype} {valid.shape}"
    length = rho.shape[0]
    assert value.shape[0] == length + 1, f"expected {length + 1} values, got {value.shape[0]}"

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
