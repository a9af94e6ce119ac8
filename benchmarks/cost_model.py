"""What a billion frames cost: the cores and accelerators that a rate needs, and the bill, from costs of one step.

All costs are parameters (docs/results/cost_model.md); `--measured` takes those of the services from what step_time.py
has measured. A second column has inference on the actors' cores, one environment at a time, as in systems without
central inference. Then the data path: how much one of each part carries, and which of them breaks first.

python benchmarks/step_time.py --part steps --set learner.shared_memory=off --json > measured.json
python benchmarks/cost_model.py --measured measured.json --rate 1000000
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

_MEASURED = ("actor_us", "broker_us", "learner_us")
_US_PER_HOUR = 3.6e9
_BYTES_PER_GBIT = 1e9 / 8


@dataclass(frozen=True)
class Costs:
    """Of one environment step, and of the machines that pay them.

    Attributes:
      actor_us, broker_us, learner_us: core-microseconds in each service; the learner's without inference and training.
      local_inference_us: core-microseconds of inference for a single environment on an actor's core.
      training_rate: environment steps/s that an accelerator trains on while it answers as many inference rows.
      training_only_rate: the same when it trains only.
      observation_bytes: on the wire.
      core_hour, accelerator_hour: price of one.
    """

    actor_us: float
    broker_us: float
    learner_us: float
    local_inference_us: float
    training_rate: float
    training_only_rate: float
    observation_bytes: float
    core_hour: float
    accelerator_hour: float


@dataclass(frozen=True)
class Bill:
    """What a rate needs and what a billion frames cost."""

    actor_cores: float
    broker_cores: float
    learner_cores: float
    accelerators: float
    network_gbit_per_s: float
    steps_per_core_second: float
    per_billion_frames: float


def central(costs: Costs, rate: float, frame_skip: int) -> Bill:
    """Inference on the accelerator."""
    return _bill(costs, rate, frame_skip, costs.actor_us, costs.broker_us, costs.training_rate)


def on_actors(costs: Costs, rate: float, frame_skip: int) -> Bill:
    """Inference beside each environment; unrolls still travel to the learner, without a broker."""
    return _bill(costs, rate, frame_skip, costs.actor_us + costs.local_inference_us, 0.0, costs.training_only_rate)


def _bill(
    costs: Costs, rate: float, frame_skip: int, actor_us: float, broker_us: float, accelerator_rate: float
) -> Bill:
    steps = 1e9 / frame_skip
    core_us = actor_us + broker_us + costs.learner_us
    price = core_us / _US_PER_HOUR * costs.core_hour + costs.accelerator_hour / (3600 * accelerator_rate)
    return Bill(
        actor_cores=rate * actor_us / 1e6,
        broker_cores=rate * broker_us / 1e6,
        learner_cores=rate * costs.learner_us / 1e6,
        accelerators=rate / accelerator_rate,
        network_gbit_per_s=rate * costs.observation_bytes / _BYTES_PER_GBIT,
        steps_per_core_second=1e6 / core_us,
        per_billion_frames=steps * price,
    )


def carried(costs: Costs, network_gbit: float) -> dict[str, float]:
    """Environment steps/s that one of each part of the data path carries.

    There may be many actors and brokers. But one process has the network, and what it spends on a step outside of the
    network it spends in Python, which is one core's work; and all observations come to that process's machine.
    """
    return {
        "broker": 1e6 / costs.broker_us,
        "learner process": 1e6 / costs.learner_us,
        "learner's network link": network_gbit * _BYTES_PER_GBIT / costs.observation_bytes,
        "accelerator": costs.training_rate,
    }


def breaks_first(one_carries: Mapping[str, float]) -> str:
    """The part that carries least."""
    return min(one_carries, key=one_carries.__getitem__)


def read_measured(file: Path) -> dict[str, float]:
    """Costs that step_time.py has printed with --json; ValueError when the file has none."""
    try:
        costs = json.loads(file.read_text())["steps"]["costs"]
        return {name: _positive(costs[name]) for name in _MEASURED}
    except (OSError, ValueError, KeyError, TypeError, argparse.ArgumentTypeError) as error:
        raise ValueError(f"expected the output of step_time.py --part steps --json in {file}: {error!r}") from error


def main() -> None:
    """Computes, prints."""
    parser = _parser()
    if (measured := parser.parse_known_args()[0].measured) is not None:
        try:
            parser.set_defaults(**read_measured(measured))
        except ValueError as error:
            parser.error(f"--measured: {error}")
    given = vars(parser.parse_args())
    del given["measured"]
    as_json, rate, frame_skip = given.pop("json"), given.pop("rate"), given.pop("frame_skip")
    network_gbit = given.pop("network_gbit")
    costs = Costs(**given)
    bills = {"central inference": central(costs, rate, frame_skip), "on actors": on_actors(costs, rate, frame_skip)}
    saving = 1 - bills["central inference"].per_billion_frames / bills["on actors"].per_billion_frames
    one_carries = carried(costs, network_gbit)
    if as_json:
        data_path = {"one_carries": one_carries, "breaks_first": breaks_first(one_carries)}
        print(json.dumps({name: asdict(bill) for name, bill in bills.items()} | {"saving": saving} | data_path))
        return
    console = Console()
    console.print(_bills_table(bills, rate, saving))
    console.print(_data_path_table(one_carries, rate))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default, meaning in (
        ("actor-us", 200.0, "core-microseconds of a step in the actor, the environment's own included"),
        ("broker-us", 25.0, "core-microseconds of a step in the broker"),
        ("learner-us", 60.0, "core-microseconds of a step in the learner, without inference and training"),
        ("local-inference-us", 800.0, "core-microseconds of inference for one environment on an actor's core"),
        ("training-rate", 100_000.0, "environment steps/s of an accelerator that trains and answers"),
        ("training-only-rate", 140_000.0, "environment steps/s of an accelerator that only trains"),
        ("observation-bytes", 7_056.0, "bytes of an observation on the wire"),
        ("core-hour", 0.04, "price of a core and hour"),
        ("accelerator-hour", 2.5, "price of an accelerator and hour"),
        ("network-gbit", 100.0, "Gbit/s of the learner's network link"),
        ("rate", 100_000.0, "environment steps/s to size for"),
    ):
        parser.add_argument(f"--{name}", type=_positive, default=default, help=f"{meaning} (default: %(default)s)")
    parser.add_argument("--frame-skip", type=int, default=4, help="frames a step (default: %(default)s)")
    parser.add_argument("--measured", type=Path, help=f"file of step_time.py that defaults of {_MEASURED} come from")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output instead of tables")
    return parser


def _bills_table(bills: Mapping[str, Bill], rate: float, saving: float) -> Table:
    table = Table("", title=f"{rate:,.0f} environment steps/s", caption=f"central inference saves {saving:.0%}")
    for name in bills:
        table.add_column(name, justify="right")
    for field in asdict(bills["on actors"]):
        table.add_row(field.replace("_", " "), *(f"{getattr(bill, field):,.2f}" for bill in bills.values()))
    return table


def _data_path_table(one_carries: Mapping[str, float], rate: float) -> Table:
    table = Table("data path", caption=f"breaks first: {breaks_first(one_carries)}")
    table.add_column("one carries, env steps/s", justify="right")
    table.add_column(f"of them for {rate:,.0f}", justify="right")
    for name, steps_per_s in one_carries.items():
        table.add_row(name, f"{steps_per_s:,.0f}", f"{rate / steps_per_s:,.1f}")
    return table


def _positive(text: str | float) -> float:
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text}")
    return value


if __name__ == "__main__":
    main()
