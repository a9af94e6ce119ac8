"""Agents, one module an algorithm."""

from __future__ import annotations

from seedrl_core.config import LearnerConfig
from seedrl_core.spec import EnvironmentSpec
from seedrl_learner.agents.base import Agent
from seedrl_learner.agents.r2d2 import R2D2Agent
from seedrl_learner.agents.vtrace import VTraceAgent


def make_agent(config: LearnerConfig, spec: EnvironmentSpec) -> Agent:
    """The configured agent for an environment.

    Args:
      config: as `defaults.resolve` returns it.
      spec: the environment's spaces.

    Raises:
      ConfigError: the agent or the network cannot handle the spaces.
    """
    match config.agent:
        case "vtrace":
            return VTraceAgent(config, spec)
        case "r2d2":
            return R2D2Agent(config, spec)
