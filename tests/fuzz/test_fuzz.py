"""A little of what `make fuzz` does much of, and that it finds what is wrong."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import grpc
import pytest
from fuzz import target
from fuzz.campaigns import fuzz_in_process, fuzz_live
from fuzz.mutations import MAX_MESSAGE_BYTES
from fuzz.pipe import Stream, open_pipe
from fuzz.recording import NUM_ENVS, TICKS, Recording, recorded
from fuzz.target import READERS, STATES, Target, Violation, mutators

from seedrl_core import codec
from seedrl_core.errors import InternalError
from seedrl_proto.v1 import inference_pb2 as inference

INPUTS, LIVE = 3000, 60


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Recording]:
    """Sessions of a real client."""
    return recorded(tmp_path_factory.mktemp("recorded"))


def test_recorded_sessions_are_whole(recordings: list[Recording]) -> None:
    """Hello, twenty ticks with episodes that end, Goodbye; with observations inline, and in shared memory."""
    for recording, shared in zip(recordings, (False, True), strict=True):
        kinds = [inference.ClientMessage.FromString(message).WhichOneof("kind") for message in recording.messages]
        assert kinds == ["hello", *["tick"] * TICKS, "goodbye"]
        assert recording.hello.HasField("shared_memory") == shared
        assert any(inference.Tick.FromString(tick).episodes for tick in recording.ticks)
    codec.decode_tick(recordings[0].ticks[0], recordings[0].spec, NUM_ENVS)


def test_changed_messages_are_of_all_kinds(recordings: list[Recording]) -> None:
    """Some are read, most are not; none is larger than is sent; the same seed gives the same ones."""
    source, again = (mutators(recordings, random.Random(0))["session"] for _ in range(2))
    messages = [source.next() for _ in range(1000)]
    assert messages == [again.next() for _ in range(1000)]
    assert max(map(len, messages)) <= MAX_MESSAGE_BYTES
    assert len(set(messages)) > 700


async def test_broker_and_learner_withstand_wrong_messages(recordings: list[Recording], tmp_path: Path) -> None:
    """Each is answered or refused in every state of a session; a bystander goes on; nothing is left behind."""
    counts = await fuzz_in_process(INPUTS, recordings, random.Random(2), tmp_path)
    assert {where for where, _ in counts} == {*READERS, *STATES, "bystander"}
    assert counts["bystander", "answered"] > INPUTS // 64
    for state in STATES[1:3]:
        assert counts[state, "answered"] and counts[state, "INVALID_ARGUMENT"]


@pytest.mark.integration
async def test_live_processes_withstand_wrong_messages(recordings: list[Recording], tmp_path: Path) -> None:
    """Over real sockets; the bystander is a real client, which never has to connect again."""
    counts = await fuzz_live(LIVE, recordings, random.Random(3), tmp_path)
    outcomes: Counter[str] = Counter()
    for (where, outcome), count in counts.items():
        outcomes[outcome] += count * (where != "bystander")
    assert sum(outcomes.values()) >= LIVE
    assert outcomes["INVALID_ARGUMENT"]
    assert counts["bystander", "answered"]


@pytest.mark.parametrize("fault", ["ends with INTERNAL", "says nothing", "says too much", "forgets the bystander"])
async def test_what_must_not_happen_is_found(
    fault: str, recordings: list[Recording], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in a service, an error without a sentence or of a thousand, a session that others disturb."""
    wrong_hello = recordings[0].hello
    wrong_hello.num_envs = 0
    message = inference.ClientMessage(hello=wrong_hello).SerializeToString()

    def check(_: object) -> None:
        match fault:
            case "ends with INTERNAL":
                raise InternalError("a bug")
            case "says nothing":
                raise codec.BadRequest("x")
            case "says too much":
                raise codec.BadRequest("x" * 5000)

    async with open_pipe(tmp_path) as pipe:
        fuzzed = Target(pipe, recordings)
        await fuzzed.bystander.open()
        await fuzzed.bystander.tick()
        monkeypatch.setattr("seedrl_broker.service.check_hello", check)
        if fault == "says too much":
            monkeypatch.setattr("seedrl_grpc.streams.words_of", str)
        if fault == "forgets the bystander":
            pipe.broker.close(next(iter(pipe.broker._sessions.values())), codec.BadRequest("mistaken for another"))
            with pytest.raises(Violation, match="the bystander's session ended"):
                await fuzzed.bystander.tick()
        else:
            with pytest.raises(Violation):
                await fuzzed.take("stream without hello", message)


async def test_a_status_must_be_one_of_the_contract() -> None:
    """Another code than those of docs/protocol.md is found, whatever it says."""
    stream = Stream(bytes)
    stream.status = (grpc.StatusCode.UNKNOWN, "Exception calling application")
    with pytest.raises(Violation, match="UNKNOWN"):
        target.check_status(stream)


def test_all_kinds_of_fields_are_given_values(recordings: list[Recording]) -> None:
    """No message of the contract has a field that fuzzing does not know how to change."""
    for source in set(mutators(recordings, random.Random(4)).values()):
        assert all(isinstance(source.next(), bytes) for _ in range(3000))
