"""How many unrolls a replay holds, so that they fit into the memory of this machine."""

from __future__ import annotations

import os
from pathlib import Path

from seedrl_core import logs
from seedrl_core.config import GiB, ReplayConfig
from seedrl_core.errors import ConfigError

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_log = logs.get(__name__)


def replay_capacity(config: ReplayConfig, unroll_bytes: int, memory_bytes: int | None = None) -> int:
    """Unrolls that `config` allows, each of `unroll_bytes`; logs what they take.

    Args:
      config: resolved.
      unroll_bytes: of one.
      memory_bytes: what the machine has; None: asks it.

    Raises:
      ConfigError: they would not fit into memory, or are fewer than learning needs.
    """
    assert config.min_unrolls is not None, "configuration not resolved"
    memory_bytes = memory_of_machine() if memory_bytes is None else memory_bytes
    capacity = min(config.capacity_unrolls, config.max_bytes // unroll_bytes)
    num_bytes = capacity * unroll_bytes
    what = f"{capacity} unrolls of {unroll_bytes} bytes, {num_bytes / GiB:.2f} GiB"
    if num_bytes > memory_bytes:
        raise ConfigError(
            f"learner.replay.max_bytes: expected at most the {memory_bytes / GiB:.2f} GiB of this machine, got {what}"
        )
    if capacity < config.min_unrolls:
        raise ConfigError(
            f"learner.replay: expected room for at least min_unrolls={config.min_unrolls} unrolls, got {what}: raise "
            "max_bytes or capacity_unrolls"
        )
    _log.info("replay_sized", unrolls=capacity, unroll_bytes=unroll_bytes, gib=round(num_bytes / GiB, 2))
    return capacity


def memory_of_machine(cgroup_limit: Path = _CGROUP_LIMIT) -> int:
    """Bytes of memory that this process may use: the machine's, or its container's where that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(machine, int(cgroup_limit.read_text()))
    except (OSError, ValueError):  # no container, or "max"
        return machine
