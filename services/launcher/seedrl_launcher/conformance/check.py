"""The check: which session takes which step, and the runs of the client that it takes. Knows no gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from seedrl_core import logs
from seedrl_core.address import Address
from seedrl_core.errors import BadRequest, PeerLost, SeedrlError, SpecMismatch
from seedrl_core.spec import EnvironmentSpec, check_same_spec
from seedrl_launcher.conformance.client import Client, Ending
from seedrl_launcher.conformance.hello_rules import take_hello
from seedrl_launcher.conformance.history import SessionHistory
from seedrl_launcher.conformance.rules import Findings, Verdict
from seedrl_launcher.conformance.session import ClientLeft, SessionOver, TestedSession
from seedrl_launcher.conformance.steps import STEPS, Step
from seedrl_launcher.conformance.streams import ClientStream, serving
from seedrl_launcher.conformance.timing import Timing
from seedrl_proto.v1 import inference_pb2 as inference

_log = logs.get(__name__)


class Check:
    """Serves a client until all steps are done.

    The steps are done one at a time, by whichever session comes first; the other sessions just play. Some steps end
    the client, which then is started again, by this check or by whoever started it.

    Attributes:
      findings: what has come of it.
      todo: the steps that are not done.
    """

    def __init__(self, client: Client | None, timing: Timing | None = None, steps: Sequence[Step] = STEPS) -> None:
        """`client` is None where somebody else starts it."""
        self.findings = Findings()
        self.todo = list(steps)
        self._client = client
        self._timing = timing or Timing()
        self._performing = False
        self._over = asyncio.Event()  # the run of the client has served its purpose
        self._ends_itself = False
        self._connected = asyncio.Event()
        self._ending: asyncio.Task[Ending] | None = None
        self._spec: EnvironmentSpec | None = None
        self._sessions: dict[bytes, TestedSession] = {}
        self._former_ids: set[bytes] = set()
        self._group: asyncio.TaskGroup
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, address: Address, stop: asyncio.Event) -> int:
        """Checks until all steps are done, the client does not get any further, or `stop` is set.

        Returns:
          The exit code: 1 when a rule was broken.

        Raises:
          AddressInUse: somebody else listens there.
          PeerLost: no client has come.
        """
        async with serving(address, self.findings, self._on_hello), asyncio.TaskGroup() as self._group:
            lives = self._group.create_task(self._all_lives())
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait((lives, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            lives.cancel()  # without effect when it has ended
            await asyncio.wait((lives,))
            self._let_go()
        if not stop.is_set() and not self.findings.anything:
            ended = f"; {self._ending.result().words}" if self._ending and self._ending.done() else ""
            raise PeerLost(f"no client has connected to {address} within {self._timing.connect_s:g} s{ended}")
        return 1 if self.findings.rules(Verdict.BROKEN) else 0

    async def _all_lives(self) -> None:
        while self.todo and await self._gets_further():
            pass

    def _let_go(self) -> None:
        """What the sessions do from now on is not the client's doing."""
        for task in self._tasks:
            task.cancel()

    async def _gets_further(self) -> bool:
        """One run of the client, from its start to its end; whether a step was done in it."""
        steps_left = len(self.todo)
        self._over.clear()
        self._ends_itself = False
        if self._client is None:
            await self._until_over()
        else:
            await self._run(self._client)
        return len(self.todo) < steps_left

    async def _run(self, client: Client) -> None:
        self._former_ids |= self._sessions.keys()
        self._sessions.clear()
        self._ending = client.start()
        try:
            await self._until_over()
            await asyncio.wait((self._ending,), timeout=self._timing.exit_s if self._ends_itself else 0.0)
        except asyncio.CancelledError:
            self._let_go()
            raise
        finally:
            await client.stop()
        _log.info("client_ended", how=(await self._ending).words.partition("\n")[0])
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _until_over(self) -> None:
        """Waits until the client should have ended or has, or has no session for connect_s seconds."""
        over = asyncio.create_task(self._over.wait())
        ends: set[asyncio.Task[Any]] = {over} | ({self._ending} if self._ending else set())
        try:
            while not any(task.done() for task in ends):
                if self._tasks:
                    await asyncio.wait(ends | self._tasks, return_when=asyncio.FIRST_COMPLETED)
                elif not await self._connects(ends):
                    _log.warning("nobody_connects", waited_s=self._timing.connect_s)
                    return
        finally:
            over.cancel()

    async def _connects(self, ends: set[asyncio.Task[Any]]) -> bool:
        """Whether a session is opened, or one of `ends` comes, within connect_s seconds."""
        self._connected.clear()
        connected = asyncio.create_task(self._connected.wait())
        try:
            done, _ = await asyncio.wait(
                ends | {connected}, timeout=self._timing.connect_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            connected.cancel()
        return bool(done)

    def _on_hello(self, stream: ClientStream, hello: inference.Hello) -> None:
        """Hands a stream to its session, which may be a new one; ends it where a broker would."""
        session = self._sessions.get(hello.session_id)
        try:
            if session is None:
                session = self._open(hello)
            elif session.over:
                raise BadRequest("the session is over")
            else:
                session.history.reopen(hello)
        except SeedrlError as error:
            stream.end(error.status, str(error))
            return
        session.hand_over(stream)

    def _open(self, hello: inference.Hello) -> TestedSession:
        """A new session, and the task that plays with it."""
        spec = take_hello(self.findings, hello)
        if hello.session_id in self._former_ids:
            self.findings.breach("H2", "another id in every run of the client", hello.session_id.hex())
        self._judge_spec(spec)
        history = SessionHistory(self.findings, hello, spec)
        session = self._sessions[hello.session_id] = TestedSession(self.findings, self._timing, history, self._ending)
        _log.info("session_opened", **logs.session_keys(hello.actor_id, hello.session_id), num_envs=hello.num_envs)
        task = self._group.create_task(self._play(session))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._connected.set()
        return session

    def _judge_spec(self, spec: EnvironmentSpec) -> None:
        if self._spec is None:
            self._spec = spec
            return
        try:
            check_same_spec(self._spec, spec)
        except SpecMismatch as error:
            self.findings.breach("H8", "the spec of the first session", str(error))
        else:
            self.findings.keep("H8")

    async def _play(self, session: TestedSession) -> None:
        """Plays with a session until it is over, and does the steps that nobody does."""
        try:
            await session.begin()
            while True:
                if self._may_perform:
                    await self._perform(self.todo[0], session)
                else:
                    await session.tick()
                    await session.answer()
        except (ClientLeft, SessionOver):
            session.over = True

    @property
    def _may_perform(self) -> bool:
        """There is a step to do, nobody does one, and the client is not about to be ended."""
        ending = self._client is not None and self._over.is_set()
        return bool(self.todo) and not self._performing and not ending

    async def _perform(self, step: Step, session: TestedSession) -> None:
        """Does a step; one that the client left in the midst of is not done."""
        _log.info("step", step=step.name, steps_left=len(self.todo))
        self._performing = True
        session_over = step.ends_client
        try:
            await step.act(session)
        except SessionOver:
            session_over = True
        finally:
            self._performing = False
        self.todo.remove(step)
        if session_over or not self.todo:
            if self._client is None and self.todo:
                _log.warning("start_the_client_again", steps_left=len(self.todo))
            self._ends_itself = step.ends_client
            self._over.set()
        if session_over:
            raise SessionOver
