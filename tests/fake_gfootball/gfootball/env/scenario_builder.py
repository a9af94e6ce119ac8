"""The scenarios that there are."""

from __future__ import annotations

SCENARIOS = ("11_vs_11_easy_stochastic", "academy_empty_goal_close", "academy_run_to_score", "test_example_multiagent")


def all_scenarios() -> list[str]:
    """Names, the directory of those for tests among them."""
    return [*SCENARIOS, "tests"]
