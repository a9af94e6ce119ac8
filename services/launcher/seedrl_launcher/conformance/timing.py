"""How long the check waits for what; the defaults are those of the protocol."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """All in seconds.

    Attributes:
      hold_s: an answer is withheld this long, to see whether the client waits for it.
      drain_grace_s: within it the client leaves after a Drain.
      silence_s: after it a client must take a connection for dead.
      waiting_interval_s: between signs of life.
      return_s: a client that must come back has come by then.
      absence_s: a client that must not come back is watched this long; more than it may wait before an attempt.
      exit_s: within it a client's process ends after its session.
      connect_s: within it a client connects.
    """

    hold_s: float = 0.2
    drain_grace_s: float = 5.0
    silence_s: float = 15.0
    waiting_interval_s: float = 3.0
    return_s: float = 20.0
    absence_s: float = 4.0
    exit_s: float = 10.0
    connect_s: float = 60.0
