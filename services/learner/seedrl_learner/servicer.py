"""The learner's gRPC edge, between gRPC streams and `LearnerService`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc

from seedrl_core import logs
from seedrl_core.aio import first_leaf
from seedrl_core.codec import spec_to_proto
from seedrl_core.errors import ExpectedError, PeerLost
from seedrl_grpc.streams import Context, OpenStreams, abort, read, write
from seedrl_learner.batch_request import BatchRequest
from seedrl_learner.reporter import Reporter
from seedrl_learner.service import LearnerService, Link
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import learner_pb2 as learner

SERVICE_NAME = "seedrl_proto.v1.Learner"
_MAX_UNANSWERED = 64  # requests of one link, those without ticks included
_log = logs.get(__name__)


class LearnerServicer:
    """`Learner` of the proto."""

    def __init__(self, service: LearnerService, reporter: Reporter, shut_down: Callable[[], None]) -> None:
        """`shut_down` is called when an operator ends the run."""
        self._service = service
        self._reporter = reporter
        self._shut_down = shut_down
        self.streams = OpenStreams()
        self._writers: dict[Link, _Writer] = {}
        self._drain: learner.BatchReply | None = None

    async def Infer(self, _: Any, context: Context) -> None:
        """One broker's link. Cancellation, which is how gRPC tells that the peer is gone, closes its sessions."""
        writer = _Writer(context)
        if self._drain is not None:
            await writer.write(self._drain)
            return
        link = Link(context.peer())
        self._writers[link] = writer
        _log.info("broker_connected", peer=link.peer)
        error: ExpectedError | None = None
        with self.streams.one():
            try:
                await writer.write(learner.BatchReply(link_welcome=self._link_welcome()))
                await self._serve(link, context, writer)
            except* ExpectedError as group:
                leaf = first_leaf(group)
                assert isinstance(leaf, ExpectedError)
                error = leaf
            finally:
                # No await here: the coroutine of a cancelled call would never come back from it.
                del self._writers[link]
                self._service.disconnect(link).add_done_callback(self._fail_with)
                _log.info("broker_disconnected", peer=link.peer, reason=str(error or ""))
        if error is not None:
            await abort(context, error)

    def handler(self) -> grpc.GenericRpcHandler:
        """What to register at the server; `Infer` reads requests as the service takes them in."""
        methods: dict[str, Any] = {
            "Infer": grpc.stream_stream_rpc_method_handler(
                self.Infer,
                request_deserializer=BatchRequest.parse,
                response_serializer=learner.BatchReply.SerializeToString,
            )
        }
        for call, request, reply in (
            (self.Status, learner.StatusRequest, learner.StatusReply),
            (self.Checkpoint, learner.CheckpointRequest, learner.CheckpointReply),
            (self.SetTraining, learner.SetTrainingRequest, learner.SetTrainingReply),
            (self.Shutdown, learner.ShutdownRequest, learner.ShutdownReply),
        ):
            methods[call.__name__] = grpc.unary_unary_rpc_method_handler(
                call, request_deserializer=request.FromString, response_serializer=reply.SerializeToString
            )
        return grpc.method_handlers_generic_handler(SERVICE_NAME, methods)

    async def drain(self, code: inference.Drain.Code, reason: str, grace_s: float) -> None:
        """Tells every broker, those that connect later too, and waits up to `grace_s` seconds for them to leave."""
        self._drain = learner.BatchReply(drain=inference.Drain(code=code, reason=reason))
        async with asyncio.TaskGroup() as group:
            telling = [group.create_task(writer.write(self._drain)) for writer in self._writers.values()]
            await self.streams.all_parted(grace_s)
            for task in telling:
                task.cancel()  # without effect, unless its broker does not read

    async def Status(self, request: learner.StatusRequest, context: Any) -> learner.StatusReply:
        """The run now."""
        run, service, reporter = self._service.run, self._service, self._reporter
        spec = run.spec
        return learner.StatusReply(
            run_id=run.run_id,
            state=self.state,
            spec=spec_to_proto(spec) if spec else None,
            env_steps=run.progress.env_steps,
            total_env_steps=run.config.total_env_steps,
            frames=run.progress.env_steps * (spec.action_repeat if spec else 1),
            policy_version=run.progress.policy_version,
            sessions=service.num_sessions,
            num_envs=service.num_envs,
            episodes=run.progress.episodes,
            mean_return=run.progress.mean_return,
            last_checkpoint=str(run.last_checkpoint or ""),
            bottleneck=reporter.bottleneck,
            metrics={name: value for name, value in reporter.latest.items() if math.isfinite(value)},
        )

    async def Checkpoint(self, request: learner.CheckpointRequest, context: Any) -> learner.CheckpointReply:
        """Saves now; waits for the current update and the disk."""
        try:
            path = await asyncio.to_thread(self._service.run.save_checkpoint)
        except ExpectedError as error:
            await abort(context, error)
        return learner.CheckpointReply(path=str(path))

    async def SetTraining(self, request: learner.SetTrainingRequest, context: Any) -> learner.SetTrainingReply:
        """Pauses or resumes; FAILED_PRECONDITION before the first session."""
        machinery = self._service.run.machinery
        if machinery is None or self._service.run.serves_only:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the learner is not training")
        else:
            machinery.trainer.set_enabled(request.enabled)
        return learner.SetTrainingReply()

    async def Shutdown(self, request: learner.ShutdownRequest, context: Any) -> learner.ShutdownReply:
        """Answers at once; the process ends in order after it."""
        _log.info("shutdown_requested", reason=request.reason)
        self._shut_down()
        return learner.ShutdownReply()

    def _fail_with(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            self.streams.fail(error)

    async def _serve(self, link: Link, context: Context, writer: _Writer) -> None:
        unanswered = asyncio.Semaphore(_MAX_UNANSWERED)
        async with asyncio.TaskGroup() as group:
            while (request := await read(context)) is not None:
                await unanswered.acquire()
                task = group.create_task(self._answer(link, writer, request))
                task.add_done_callback(lambda _: unanswered.release())

    async def _answer(self, link: Link, writer: _Writer, request: BatchRequest) -> None:
        async for replies in self._service.answer(link, request):
            await writer.write(learner.BatchReply(replies=replies))

    def _link_welcome(self) -> learner.LinkWelcome:
        config = self._service.run.config
        return learner.LinkWelcome(
            credits=config.inference_credits,
            run_id=self._service.run.run_id,
            max_batch_rows=config.max_batch_rows,
            max_message_bytes=config.max_message_bytes,
        )

    @property
    def state(self) -> str:
        """What the learner does, in words: see StatusReply.state."""
        machinery = self._service.run.machinery
        if self._drain is not None:
            return "draining"
        if machinery is None:
            return "waiting for a first session"
        if self._service.run.serves_only:
            return "serving"
        return "training" if machinery.trainer.enabled else "paused"


class _Writer:
    """Writes of one stream: those of several tasks take turns, and say nothing when the peer has gone."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._writing = asyncio.Lock()

    async def write(self, reply: learner.BatchReply) -> None:
        """Sends; waits while the transport's window is full."""
        async with self._writing:
            with suppress(PeerLost):
                await write(self._context, reply)
