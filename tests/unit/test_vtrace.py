"""V-trace against a slow oracle written from the paper's formula, and the properties that follow from it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from seedrl_learner.rl.vtrace import VTrace, vtrace

Floats = npt.NDArray[np.float64]
T, B = 9, 4


def oracle(
    rho: Floats,
    discount: Floats,
    reward: Floats,
    value: Floats,
    valid: npt.NDArray[np.bool_],
    trace_lambda: float,
    clip_rho: float,
    clip_c: float,
    clip_pg_rho: float,
) -> tuple[Floats, Floats]:
    """Equation 1 as it is printed: for each s a sum over t of products over i; O(T^3), one environment at a time."""
    steps, batch = rho.shape
    vs, advantage = np.zeros((steps + 1, batch)), np.zeros((steps, batch))
    for b in range(batch):
        for s in range(steps):
            total = value[s, b]
            for t in range(s, steps):
                weight = 1.0
                for i in range(s, t):
                    weight *= discount[i, b] * trace_lambda * min(clip_c, rho[i, b]) * valid[i, b]
                delta = min(clip_rho, rho[t, b]) * (reward[t, b] + discount[t, b] * value[t + 1, b] - value[t, b])
                total += weight * delta * valid[t, b]
            vs[s, b] = total
        vs[steps, b] = value[steps, b]
        for t in range(steps):
            following = trace_lambda * vs[t + 1, b] + (1 - trace_lambda) * value[t + 1, b]
            td = reward[t, b] + discount[t, b] * following - value[t, b]
            advantage[t, b] = min(clip_pg_rho, rho[t, b]) * td * valid[t, b]
    return vs[:-1], advantage


def random_inputs(seed: int) -> dict[str, npt.NDArray[np.generic]]:
    """Log rho is spread over -2.5..2.5, so that rho falls on both sides of every clip; some steps end an episode."""
    rng = np.random.default_rng(seed)
    rho = np.exp(rng.permutation(np.linspace(-2.5, 2.5, T * B)).reshape(T, B))
    return {
        "rho": rho.astype(np.float32),
        "discount": np.where(rng.random((T, B)) < 0.2, 0.0, 0.9).astype(np.float32),
        "reward": rng.normal(size=(T, B)).astype(np.float32),
        "value": rng.normal(size=(T + 1, B)).astype(np.float32),
        "valid": rng.random((T, B)) > 0.15,
    }


def constant_inputs(steps: int, **changes: object) -> dict[str, npt.NDArray[np.generic]]:
    """One environment, on-policy, without rewards or endings."""
    inputs = {
        "rho": np.ones((steps, 1), np.float32),
        "discount": np.ones((steps, 1), np.float32),
        "reward": np.zeros((steps, 1), np.float32),
        "value": np.zeros((steps + 1, 1), np.float32),
        "valid": np.ones((steps, 1), np.bool_),
    }
    return inputs | {name: np.asarray(value, inputs[name].dtype)[:, None] for name, value in changes.items()}


def run(inputs: dict[str, npt.NDArray[np.generic]], **settings: float) -> VTrace:
    """V-trace of NumPy arrays."""
    return vtrace(**{name: tf.constant(value) for name, value in inputs.items()}, **settings)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("trace_lambda", "clip_rho", "clip_c", "clip_pg_rho"),
    [(1.0, 1.0, 1.0, 1.0), (0.9, 3.7, 1.1, 2.2), (0.0, 1.0, 1.0, 1.0), (0.7, 0.5, 0.4, 0.3)],
)
def test_agrees_with_the_formula_of_the_paper(
    seed: int, trace_lambda: float, clip_rho: float, clip_c: float, clip_pg_rho: float
) -> None:
    """Targets and advantages are those of equation 1, with rho on both sides of every clip."""
    inputs = random_inputs(seed)
    for clip in (clip_rho, clip_c, clip_pg_rho):
        assert (inputs["rho"] > clip).any()
        assert (inputs["rho"] < clip).any()
    result = run(inputs, trace_lambda=trace_lambda, clip_rho=clip_rho, clip_c=clip_c, clip_pg_rho=clip_pg_rho)
    vs, advantage = oracle(
        **inputs, trace_lambda=trace_lambda, clip_rho=clip_rho, clip_c=clip_c, clip_pg_rho=clip_pg_rho
    )
    np.testing.assert_allclose(result.vs, vs, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result.pg_advantage, advantage, rtol=1e-5, atol=1e-5)


def test_on_policy_targets_are_n_step_returns() -> None:
    """With rho = 1 and lambda = 1 the target is the discounted sum of rewards plus the discounted bootstrap value."""
    reward, value, gamma = [1.0, -2.0, 0.5, 4.0], [0.3, 7.0, -1.0, 2.0, 10.0], 0.9
    inputs = constant_inputs(4, reward=reward, value=value, discount=[gamma] * 4)
    expected = [sum(gamma ** (t - s) * reward[t] for t in range(s, 4)) + gamma ** (4 - s) * value[4] for s in range(4)]
    result = run(inputs)
    np.testing.assert_allclose(result.vs[:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(result.pg_advantage[:, 0], np.array(expected) - value[:4], rtol=1e-5)


def test_on_policy_advantages_are_generalized_advantage_estimates() -> None:
    """With rho = 1 and any lambda the advantage is the (gamma lambda)-discounted sum of TD errors."""
    rng = np.random.default_rng(3)
    reward, value, gamma, lambda_ = rng.normal(size=6), rng.normal(size=7), 0.9, 0.8
    result = run(constant_inputs(6, reward=reward, value=value, discount=[gamma] * 6), trace_lambda=lambda_)
    td = reward + gamma * value[1:] - value[:-1]
    expected = [sum((gamma * lambda_) ** (t - s) * td[t] for t in range(s, 6)) for s in range(6)]
    np.testing.assert_allclose(result.pg_advantage[:, 0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("terminated", [True, False])
def test_a_trace_of_two_episodes_equals_its_pieces(terminated: bool) -> None:
    """Steps of one episode have the targets they would have had without the other in the same unroll."""
    rng = np.random.default_rng(11)
    cut = 4  # x_4 is the last observation of the first episode, transition 4 goes into the reset
    inputs = {name: value[:, :1] for name, value in random_inputs(1).items()}
    inputs["discount"] = np.full((T, 1), 0.9, np.float32)
    inputs["value"] = rng.normal(size=(T + 1, 1)).astype(np.float32)
    inputs["valid"] = np.arange(T)[:, None] != cut
    if terminated:
        inputs["discount"][cut - 1] = 0.0
    whole = run(inputs, trace_lambda=0.95)

    def piece(begin: int, end: int) -> VTrace:
        part = {name: value[begin : end + (name == "value")] for name, value in inputs.items()}
        return run(part, trace_lambda=0.95)

    before, after = piece(0, cut), piece(cut + 1, T)
    for name in VTrace._fields:
        np.testing.assert_allclose(getattr(whole, name)[:cut], getattr(before, name), rtol=1e-6)
        np.testing.assert_allclose(getattr(whole, name)[cut + 1 :], getattr(after, name), rtol=1e-6)


def test_truncation_bootstraps_from_the_final_observation() -> None:
    """V is 1 all through a truncated episode and 100 in the next: the advantage at the cut is 0, not 99."""
    inputs = constant_inputs(5, value=[1, 1, 1, 100, 100, 100], valid=[1, 1, 0, 1, 1])
    result = run(inputs)
    np.testing.assert_array_equal(result.pg_advantage[:, 0], np.zeros(5))
    np.testing.assert_array_equal(result.vs[:, 0], [1, 1, 1, 100, 100])


def test_termination_does_not_bootstrap() -> None:
    """The value of a terminal observation is no part of any target before it."""
    inputs = constant_inputs(3, reward=[1, 1, 0], value=[0, 0, 1000, 0], discount=[1, 0, 1], valid=[1, 1, 0])
    np.testing.assert_array_equal(run(inputs).vs[:2, 0], [2, 1])


def test_content_of_invalid_transitions_does_not_matter() -> None:
    """NaN reward and infinite rho at an invalid transition change nothing, there or elsewhere."""
    inputs = random_inputs(2)
    invalid = ~inputs["valid"]
    assert invalid.any()
    expected = run(inputs)
    poisoned = inputs | {
        "reward": np.where(invalid, np.float32(np.nan), inputs["reward"]),
        "rho": np.where(invalid, np.float32(np.inf), inputs["rho"]),
        "discount": np.where(invalid, np.float32(np.nan), inputs["discount"]),
    }
    result = run(poisoned)
    np.testing.assert_array_equal(result.vs, expected.vs)
    np.testing.assert_array_equal(result.pg_advantage, expected.pg_advantage)


def test_no_gradient_flows_through_targets() -> None:
    """Targets and advantages are constants to the optimizer."""
    inputs = {name: tf.constant(value) for name, value in random_inputs(0).items()}
    with tf.GradientTape() as tape:
        tape.watch([inputs["value"], inputs["rho"]])
        result = vtrace(**inputs)
        total = tf.reduce_sum(result.vs) + tf.reduce_sum(result.pg_advantage)
    assert tape.gradient(total, [inputs["value"], inputs["rho"]]) == [None, None]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("value", np.zeros((T, B), np.float32)),
        ("rho", np.ones((T, B), np.float64)),
        ("valid", np.ones((T, B), np.float32)),
        ("reward", np.zeros(T, np.float32)),
    ],
)
def test_refuses_wrong_ranks_lengths_and_dtypes(name: str, wrong: npt.NDArray[np.generic]) -> None:
    """A missing bootstrap value, a float mask, float64 or a missing dimension is an error, never broadcast."""
    with pytest.raises(AssertionError, match="expected"):
        run(random_inputs(0) | {name: wrong})
