"""What a session's first `Hello` must be: rules H1 to H7. Knows no gRPC."""

from __future__ import annotations

import math

from seedrl_core import codec
from seedrl_core.errors import BadRequest
from seedrl_core.shared_memory import SESSION_ID_BYTES
from seedrl_core.spec import EnvironmentSpec
from seedrl_launcher.conformance.action_choice import mask_of, num_values
from seedrl_launcher.conformance.rules import Findings
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import spec_pb2


def take_hello(findings: Findings, hello: inference.Hello) -> EnvironmentSpec:
    """Judges a Hello and returns its spec.

    Raises:
      SeedrlError: no session can be played with it; the error that a broker or learner would end the stream with.
    """
    version, id_bytes, role = hello.protocol_version, len(hello.session_id), hello.role
    findings.judge("H1", version == codec.PROTOCOL_VERSION, str(codec.PROTOCOL_VERSION), str(version))
    findings.judge("H2", id_bytes == SESSION_ID_BYTES, f"{SESSION_ID_BYTES} bytes", f"{id_bytes} bytes")
    roles = (inference.ROLE_TRAIN, inference.ROLE_EVAL)
    findings.judge("H3", role in roles, "1 (ROLE_TRAIN) or 2 (ROLE_EVAL)", str(role))
    findings.judge(
        "H4", 1 <= hello.num_envs <= codec.MAX_NUM_ENVS, f"1 to {codec.MAX_NUM_ENVS}", f"{hello.num_envs} environments"
    )
    bounded = [_has_bounds(findings, leaf) for leaf in hello.spec.action]
    codec.check_hello(hello)
    try:
        spec = codec.spec_from_proto(hello.spec)
    except BadRequest as error:
        if all(bounded):
            findings.breach("H5", "a usable spec", str(error))
        raise
    findings.keep("H5")
    if not all(bounded):
        raise BadRequest("spec: expected finite bounds of every action leaf")
    fitting = [_fits(findings, spec, index) for index, leaf in enumerate(spec.observation) if leaf.is_action_mask]
    if not all(fitting):
        raise BadRequest("spec: expected masks that fit the actions")
    return spec


def _has_bounds(findings: Findings, leaf: spec_pb2.TensorSpec) -> bool:
    low, high = list(leaf.low), list(leaf.high)
    return findings.judge(
        "H6",
        bool(low and high) and all(map(math.isfinite, (*low, *high))),
        f"{leaf.path}: finite low and high",
        f"low {low}, high {high}",
    )


def _fits(findings: Findings, spec: EnvironmentSpec, mask: int) -> bool:
    """An observation leaf that is a mask is one for an action leaf, and of its size."""
    leaf = spec.observation[mask]
    action = next((action for action in spec.action if mask_of(spec, action) == mask), None)
    if action is None or not action.is_integer:
        names = ", ".join(action.path for action in spec.action if action.is_integer)
        return findings.judge("H7", False, f"a mask of an integer action leaf ({names or 'none'})", leaf.path)
    size = sum(num_values(action))
    return findings.judge(
        "H7",
        leaf.is_integer and leaf.size == size,
        f"{leaf.path}: {size} integers or booleans for {action.describe()}",
        leaf.describe(),
    )


def same_but_for_memory(first: inference.Hello, again: inference.Hello) -> bool:
    """Whether two Hellos of a session differ in what they offer to share only."""
    alone = []
    for hello in (first, again):
        copy = inference.Hello()
        copy.CopyFrom(hello)
        copy.ClearField("shared_memory")
        alone.append(copy)
    return alone[0] == alone[1]
