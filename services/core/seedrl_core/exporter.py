"""A service's numbers for Prometheus: its `Metrics` and state under Prometheus' naming conventions, over HTTP.

Names follow from those of `Metrics`, so that nobody keeps a second list: `inference/step_ms` of the learner becomes the
summary `seedrl_learner_inference_step_seconds`, `env_steps_per_s` the counter `seedrl_learner_env_steps_total`, and
`inference/busy_share` the counter `seedrl_learner_inference_busy_seconds_total`, whose rate is the share.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from seedrl_core import logs
from seedrl_core.address import Address
from seedrl_core.errors import AddressInUse
from seedrl_core.metrics import Totals

# Suffix of a name in `Metrics` -> suffix of a gauge, and the factor to its base unit.
_GAUGE_UNITS = {
    "_ms": ("_seconds", 1e-3),
    "_share": ("_ratio", 1.0),
    "fill": ("fill_ratio", 1.0),
    "_per_s": ("_per_second", 1.0),
    "/total": ("", 1.0),  # `_total` ends the names of counters alone
}
_PATIENCE_S = 5.0
_log = logs.get(__name__)


@dataclass(frozen=True)
class Readings:
    """What a service is like now.

    Attributes:
      gauges: numbers by name, the newest known, so that none disappears for a while.
        Those of which `Totals` has a sum as well are left out of what is exported.
      info: words, such as the run's name; they become the labels of `seedrl_SERVICE_info`.
    """

    gauges: Mapping[str, float] = field(default_factory=dict)
    info: Mapping[str, str] = field(default_factory=dict)


class ServiceCollector(Collector):
    """Reads a service's numbers whenever Prometheus asks.

    `readings` are taken in the service's event loop, so that they see no half-made change, and so that a service whose
    loop is stuck does not look alive: without an answer within 5 s the request fails.
    """

    def __init__(self, service: str, totals: Callable[[], Totals], readings: Callable[[], Readings]) -> None:
        """To be made in the service's event loop; `totals` is called from another thread."""
        self._loop = asyncio.get_running_loop()
        self._service = service
        self._totals = totals
        self._readings = readings

    def collect(self) -> Iterable[Metric]:
        """One family a number."""
        totals = self._totals()
        readings = asyncio.run_coroutine_threadsafe(self._read(), self._loop).result(_PATIENCE_S)
        for name, count in totals.counts.items():
            yield CounterMetricFamily(self._name(name.removesuffix("_per_s")), f"Number of {name}.", value=count)
        for name, seconds in totals.busy_s.items():
            family = self._name(f"{name.removesuffix('_share')}_seconds")
            yield CounterMetricFamily(family, f"Time behind {name}; its rate is the share.", value=seconds)
        exported = {*totals.counts, *totals.busy_s}
        for name, weight in totals.weights.items():
            # Only durations become summaries: a sum that can fall, of losses or returns, has no rate.
            if name.endswith("_ms"):
                exported.add(name)
                family = self._name(f"{name.removesuffix('_ms')}_seconds")
                yield SummaryMetricFamily(family, f"Durations behind {name}.", int(weight), totals.sums[name] / 1000.0)
        for name, value in readings.gauges.items():
            if name not in exported:
                yield self._gauge(name, value)
        info = GaugeMetricFamily(self._name("info"), "What the service is doing, in labels.", labels=[*readings.info])
        info.add_metric([*readings.info.values()], 1.0)
        yield info

    async def _read(self) -> Readings:
        return self._readings()

    def _gauge(self, name: str, value: float) -> Metric:
        for suffix, (unit, factor) in _GAUGE_UNITS.items():
            if name.endswith(suffix):
                return GaugeMetricFamily(
                    self._name(name.removesuffix(suffix) + unit), f"{name} of the last window.", value * factor
                )
        return GaugeMetricFamily(self._name(name), f"{name} now, or of the last window.", value)

    def _name(self, name: str) -> str:
        """`group/quantity` -> `seedrl_SERVICE_group_quantity`; a group that is the service's name is not said twice."""
        local = re.sub(r"[^a-zA-Z0-9]+", "_", name.removeprefix(f"{self._service}/")).strip("_")
        return f"seedrl_{self._service}_{local}"


@contextmanager
def exported(listen: str, collector: Collector) -> Iterator[int | None]:
    """Serves the collector, and CPU, memory and files of the process, at `listen` (`host:port`); not when it is empty.

    Gives the port. Every path answers.

    Raises:
      AddressInUse: something listens there already.
    """
    if not listen:
        yield None
        return
    address = Address.parse(listen)
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(address.port, address.host, registry)
    except OSError as error:
        raise AddressInUse(f"cannot serve metrics on {listen}: {error.strerror}") from error
    _log.info("metrics_served", listen=f"{address.host}:{server.server_port}")
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
