"""Who gets in: real servers with certificates and tokens, and clients of every kind that have them or do not."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from certificates import LOOPBACK, Authority, access, flags, token, token_files
from fakes_learner import FakeLearner, learner_at
from ports import free_port

from seedrl_broker import link
from seedrl_broker.server import serve
from seedrl_broker.service import BrokerService
from seedrl_client import Session
from seedrl_client.connection import Connection
from seedrl_core.access import NO_CREDENTIALS, AccessConfig, Role
from seedrl_core.address import Address
from seedrl_core.codec import spec_to_proto
from seedrl_core.config import load_settings
from seedrl_core.errors import AccessDenied, ConfigError, PeerLost
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_launcher import status
from seedrl_learner.server import serve as serve_learner
from seedrl_proto.v1 import inference_pb2 as inference

TIMEOUT_S = 100.0
SPEC = EnvironmentSpec(
    "Counter-v0",
    (TensorSpec("observation", np.dtype(np.float32), (2,)),),
    (TensorSpec("action", np.dtype(np.int64), (), (0.0,), (1.0,)),),
)
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


@asynccontextmanager
async def serving(service: Awaitable[int], address: str, stop: asyncio.Event) -> AsyncIterator[None]:
    """Runs a service until the end, and yields once it accepts connections."""
    task = asyncio.ensure_future(service)
    target = Address.parse(address)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while not task.done():
                try:
                    if target.path:
                        _, writer = await asyncio.open_unix_connection(target.path)
                    else:
                        _, writer = await asyncio.open_connection(target.host, target.port)
                    writer.close()
                    break
                except OSError:
                    await asyncio.sleep(0.01)
        yield
    finally:
        stop.set()
        assert await task == 0


@asynccontextmanager
async def broker(directory: Path, credentials: AccessConfig, **settings: object) -> AsyncIterator[str]:
    """A broker on a loopback port with a healthy learner behind it; its address."""
    learner = f"unix:{directory / 'fake-learner'}"
    keys = {"listen": f"127.0.0.1:{free_port()}", "learner": learner, "drain_grace_s": 0.2, **settings}
    config = load_settings(None, {f"broker.{key}": value for key, value in keys.items()}).broker
    stop = asyncio.Event()
    async with (
        learner_at(learner, FakeLearner()),
        serving(serve(config, stop, credentials), config.listen, stop),
    ):
        yield config.listen


async def open_session(address: str, credentials: AccessConfig, patience_s: float = TIMEOUT_S) -> None:
    """What an actor does first."""
    async with Session(address, SPEC, 2, peer_timeout_s=patience_s, shared_memory="off", access=credentials):
        pass


async def ask_status(address: str, credentials: AccessConfig) -> str:
    """What `seedrl status` asks; the kind of service."""
    async with status.connect(address, credentials) as client:
        return str(status.plain_values(await client.any_service())["service"])


async def refused(call: Awaitable[Any], kind: type[Exception]) -> str:
    """The one line with which a client ends."""
    with pytest.raises(kind) as caught:
        await call
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_mutual_tls_with_tokens_lets_actor_and_operator_in(tmp_path: Path) -> None:
    """Both ends show a certificate, the actor and the operator their tokens; a session opens and a status comes."""
    authority = Authority(tmp_path)
    tokens = token_files(tmp_path, Role.ACTOR, Role.OPERATOR)
    server = access(**authority.certify(*LOOPBACK), authority=authority.file, require_client_certificate=True, **tokens)
    client = access(**authority.certify("client.example"), authority=authority.file, **tokens)
    async with broker(tmp_path, server) as address:
        await open_session(address, client)
        assert await ask_status(address, client) == "broker"
        await open_session(address.replace("127.0.0.1", "localhost"), client)


@pytest.mark.parametrize("server", ["expired", "of another authority", "of another name", "plain"])
async def test_a_server_that_is_not_to_be_trusted_ends_the_client_with_one_line(tmp_path: Path, server: str) -> None:
    """The actor and the operator say why, and do not try again; nothing was sent, a token least of all."""
    authority = Authority(tmp_path)
    certificate, words = {
        "expired": (authority.certify(*LOOPBACK, expired=True), "is not trusted: certificate has expired"),
        "of another authority": (Authority(tmp_path, "other").certify(*LOOPBACK), "is not trusted: .*issuer cert"),
        "of another name": (authority.certify("elsewhere.example"), "is not trusted: .*not valid for '127.0.0.1'"),
        "plain": ({}, "does not speak TLS as access.authority demands: .*; has the server a certificate?"),
    }[server]
    client = access(authority=authority.file)
    async with broker(tmp_path, access(**certificate)) as address:
        for call in (open_session(address, client), ask_status(address, client)):
            with pytest.raises(AccessDenied, match=words):
                await call
        if server == "of another name":
            await open_session(address, access(authority=authority.file, server_name="elsewhere.example"))


async def test_a_client_without_tls_is_told_what_the_silence_may_mean(tmp_path: Path) -> None:
    """The server closes the connection and says nothing; the line names the setting, and the actor's patience ends."""
    server = access(**Authority(tmp_path).certify(*LOOPBACK))
    async with broker(tmp_path, server) as address:
        told = await refused(open_session(address, NO_CREDENTIALS, 0.5), PeerLost)
        assert told.startswith("gave up after 0.5 s: ")
        assert "does it expect TLS? then set access.authority" in told
        assert "does it expect TLS?" in await refused(ask_status(address, NO_CREDENTIALS), PeerLost)


async def test_mutual_tls_refuses_a_client_without_a_certificate_of_the_authority(tmp_path: Path) -> None:
    """With none, and with one of a stranger; each is told which setting to look at."""
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    server = access(**authority.certify(*LOOPBACK), authority=authority.file, require_client_certificate=True)
    async with broker(tmp_path, server) as address:
        for client, words in (
            (access(authority=authority.file), "then set access.certificate and access.key"),
            (access(authority=authority.file, **stranger.certify("client")), "does it trust access.certificate?"),
        ):
            assert words in await refused(open_session(address, client, 0.5), PeerLost)
            assert words in await refused(ask_status(address, client), PeerLost)


async def test_a_wrong_or_missing_token_ends_an_actor_at_once(tmp_path: Path) -> None:
    """It does not try again, though its patience would last; the line says which token is expected."""
    tokens = token_files(tmp_path, *Role)
    async with broker(tmp_path, access(**tokens)) as address:
        for credentials, words in (
            (NO_CREDENTIALS, "expected a token of role actor, got none: set SEEDRL_ACTOR_TOKEN"),
            (access(actor_token_file=tokens["broker_token_file"]), "got an unknown one"),
            (access(actor_token_file=tokens["operator_token_file"]), "got that of role operator"),
        ):
            session = Session(address, SPEC, 2, peer_timeout_s=300.0, access=credentials)
            assert words in await refused(session.open(), AccessDenied)
        told = await refused(ask_status(address, NO_CREDENTIALS), AccessDenied)
        assert told.startswith(f"{address}: expected a token of role actor or operator, got none")


async def test_a_token_is_not_sent_to_another_host_in_the_clear(tmp_path: Path) -> None:
    """An actor and an operator end before they connect."""
    tokens = access(**token_files(tmp_path, *Role))
    for call in (open_session("192.0.2.1:1", tokens), ask_status("192.0.2.1:1", tokens)):
        assert "would go to 192.0.2.1:1 unencrypted" in await refused(call, ConfigError)


async def end_of(channel: grpc.aio.Channel, method: str, role: Role | None) -> grpc.StatusCode:
    """How a call with an empty message ends, with the token of a role or with none."""
    metadata = (("authorization", f"Bearer {token(role)}"),) if role else ()
    call = channel.unary_stream(method)(b"", metadata=metadata, timeout=TIMEOUT_S)
    with suppress(grpc.aio.AioRpcError):
        async for _ in call:
            pass
    return await call.code()


async def check_callers(address: str, allowed: dict[str, set[Role | None]]) -> None:
    """Each method is for the roles given, and for no other caller."""
    async with grpc.aio.insecure_channel(address) as channel:
        for method, roles in allowed.items():
            for role in (None, *Role):
                code = await end_of(channel, method, role)
                assert (code is not UNAUTHENTICATED) == (role in roles), (method, role, code)


EVERYBODY = {None, *Role}
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
HEALTH = "/grpc.health.v1.Health/Check"


async def test_each_method_of_a_broker_is_for_its_roles(tmp_path: Path) -> None:
    """Sessions for actors, Describe for operators too, reflection for operators, health for everybody."""
    async with broker(tmp_path, access(**token_files(tmp_path, *Role))) as address:
        await check_callers(
            address,
            {
                "/seedrl_proto.v1.Inference/Session": {Role.ACTOR},
                "/seedrl_proto.v1.Inference/Describe": {Role.ACTOR, Role.OPERATOR},
                REFLECTION: {Role.OPERATOR},
                HEALTH: EVERYBODY,
            },
        )
        async with grpc.aio.insecure_channel(address) as channel:
            assert await end_of(channel, "/seedrl_proto.v1.Learner/Status", None) is grpc.StatusCode.UNIMPLEMENTED


async def test_each_method_of_a_learner_is_for_its_roles(tmp_path: Path) -> None:
    """Links for brokers, Status for brokers and operators, everything that changes something for operators."""
    listen = f"unix:{tmp_path / 'learner'}"
    config = load_settings(None, {"learner.listen": listen, "learner.run_dir": str(tmp_path / "run")}).learner
    stop = asyncio.Event()
    credentials = access(**token_files(tmp_path, *Role))
    async with serving(serve_learner(config, stop, access=credentials), listen, stop):
        await check_callers(
            listen,
            {
                "/seedrl_proto.v1.Learner/Infer": {Role.BROKER},
                "/seedrl_proto.v1.Learner/Status": {Role.BROKER, Role.OPERATOR},
                "/seedrl_proto.v1.Learner/Checkpoint": {Role.OPERATOR},
                "/seedrl_proto.v1.Learner/SetTraining": {Role.OPERATOR},
                REFLECTION: {Role.OPERATOR},
                HEALTH: EVERYBODY,
                "/seedrl_proto.v1.Learner/Shutdown": {Role.OPERATOR},
            },
        )


async def test_a_role_without_a_token_is_nobody_once_another_has_one(tmp_path: Path) -> None:
    """A broker that knows actors' tokens alone does not talk to operators without one."""
    async with broker(tmp_path, access(**token_files(tmp_path, Role.ACTOR))) as address:
        await check_callers(address, {"/seedrl_proto.v1.Inference/Describe": {Role.ACTOR}, REFLECTION: set()})


async def reason_without_learner(address: str, credentials: AccessConfig) -> str:
    """Why a broker says that its learner is away, after its first try."""
    config = load_settings(None, {"broker.learner": address}).broker
    service = BrokerService(config)
    tried = asyncio.Event()

    async def on_change() -> None:
        tried.set()

    target = Address.parse(address)
    async with link.open_channel(target, credentials) as channel:
        run = asyncio.create_task(link.LearnerLink(service, channel, target, credentials, on_change).run())
        async with asyncio.timeout(TIMEOUT_S):
            await tried.wait()
        run.cancel()
        await asyncio.wait((run,))
    return "" if service.learner_ready else service.waits_for(0.0)


async def test_a_broker_says_why_it_has_no_learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With mutual TLS it has one; an expired or foreign certificate on either side is named in its log."""
    monkeypatch.setattr(link, "_WELCOME_TIMEOUT_S", 2.0)
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    trusting = {"authority": authority.file}
    mutual = {**trusting, **authority.certify("broker.example")}
    demanding = {**trusting, "require_client_certificate": True}
    good, expired = authority.certify(*LOOPBACK), authority.certify(*LOOPBACK, expired=True)
    for learner, client, words in (
        ({**good, **demanding}, mutual, ""),
        (expired, trusting, "certificate has expired"),
        (stranger.certify(*LOOPBACK), trusting, "CERTIFICATE_VERIFY_FAILED"),
        ({**good, **demanding}, trusting, "does it require a client's certificate?"),
        (good, {}, "does it expect TLS?"),
    ):
        address = f"127.0.0.1:{free_port()}"
        async with learner_at(address, FakeLearner(), access(**learner)):
            told = await reason_without_learner(address, access(**client))
        assert words in told
        assert bool(words) == told.startswith(f"learner is not there: {address}: "), told


@pytest.mark.parametrize("code", [UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED])
async def test_a_broker_that_is_refused_tries_again_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: grpc.StatusCode
) -> None:
    """Seconds lie between its tries, as a person has to change something; its clients hear the learner's words."""

    class Refusing(FakeLearner):
        async def Infer(self, _: Any, context: Any) -> None:
            await context.abort(code, "expected something else")

    pauses: list[tuple[float, float]] = []
    uniform = link.random.uniform
    monkeypatch.setattr(link.random, "uniform", lambda low, high: pauses.append((low, high)) or uniform(low, high))
    address = f"unix:{tmp_path / 'learner'}"
    async with learner_at(address, Refusing()):
        told = await reason_without_learner(address, NO_CREDENTIALS)
    assert told == f"learner is not there: {address}: expected something else"
    assert pauses == [(5.0, 10.0)]


async def health(*arguments: str) -> tuple[int, str]:
    """Exit code and error line of `seedrl-health`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "seedrl_grpc.health", *arguments, stderr=asyncio.subprocess.PIPE
    )
    _, told = await process.communicate()
    assert process.returncode is not None
    return process.returncode, told.decode().strip().splitlines()[-1] if told else ""


async def test_the_health_probe_needs_the_certificates_and_no_token(tmp_path: Path) -> None:
    """It has the settings of its container; without them it fails and says what may be missing."""
    authority = Authority(tmp_path)
    mutual = {**authority.certify(*LOOPBACK), "authority": authority.file}
    server = access(**mutual, require_client_certificate=True, **token_files(tmp_path, *Role))
    async with broker(tmp_path, server) as address:
        assert await health(address, *flags(**mutual)) == (0, "")
        code, told = await health(address, *flags(authority=authority.file))
        assert (code, "does it require a client's certificate?" in told) == (1, True)
        code, told = await health(address)
        assert (code, "does it expect TLS?" in told) == (1, True)


async def test_a_tls_client_that_drops_its_connection_is_gone_at_once(tmp_path: Path) -> None:
    """The broker does not keep the session until half a minute of TLS's farewell is over."""
    authority = Authority(tmp_path)
    client = access(authority=authority.file)
    async with broker(tmp_path, access(**authority.certify(*LOOPBACK))) as address:
        connection = await Connection.open(Address.parse(address), client, TIMEOUT_S)
        hello = inference.Hello(
            protocol_version=1, session_id=bytes(16), role=inference.ROLE_TRAIN, num_envs=1, spec=spec_to_proto(SPEC)
        )
        await connection.send(inference.ClientMessage(hello=hello).SerializeToString(), TIMEOUT_S)
        while (await connection.receive(TIMEOUT_S)).WhichOneof("kind") != "welcome":
            pass
        async with status.connect(address, client) as operator, asyncio.timeout(15.0):
            assert (await operator.any_service()).sessions == 1
            connection.close()
            while (await operator.any_service()).sessions:
                await asyncio.sleep(0.05)


async def test_one_host_has_only_so_many_streams_sessions_and_environments(tmp_path: Path) -> None:
    """Streams that say no Hello count too; each refusal is RESOURCE_EXHAUSTED with a sentence."""
    limits = {"max_sessions_per_host": 2, "max_envs_per_host": 4}
    async with broker(tmp_path, NO_CREDENTIALS, **limits) as address:

        def session(num_envs: int, patience_s: float = TIMEOUT_S) -> Session:
            return Session(address, SPEC, num_envs, peer_timeout_s=patience_s, shared_memory="off")

        async with session(2):
            told = await refused(session(3, 0.5).open(), PeerLost)
            assert "expected at most 4 environments of host 127.0.0.1 (max_envs_per_host), got 5" in told
            async with session(1):
                told = await refused(session(1, 0.5).open(), PeerLost)
                assert "expected at most 2 sessions of host 127.0.0.1 (max_sessions_per_host)" in told
        async with grpc.aio.insecure_channel(address) as channel:
            call = channel.stream_stream("/seedrl_proto.v1.Inference/Session")
            silent = [call(timeout=TIMEOUT_S) for _ in range(4)]
            for stream in silent:
                await stream.wait_for_connection()
            async with asyncio.timeout(TIMEOUT_S):
                # The server takes streams in as it gets to them.
                while (last := await end_of_silent(call)) is grpc.StatusCode.DEADLINE_EXCEEDED:
                    pass
            assert last is grpc.StatusCode.RESOURCE_EXHAUSTED
            for stream in silent:
                stream.cancel()


async def end_of_silent(call: Any) -> grpc.StatusCode:
    """How a stream ends that says nothing for a second."""
    return await call(timeout=1.0).code()  # type: ignore[no-any-return]
