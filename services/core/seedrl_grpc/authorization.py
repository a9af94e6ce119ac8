"""Who may call which method of a server: asks for a token before a call reaches its handler."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health

from seedrl_core import logs
from seedrl_core.access import Role, TokenCheck
from seedrl_core.errors import AccessDenied
from seedrl_grpc.streams import Context, abort

Callers = Mapping[str, Collection[Role]]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"

_HEALTH = f"/{health.SERVICE_NAME}/"
# Whatever no rule names, reflection say.
_OTHERS = (Role.OPERATOR,)
_TELL_EVERY_S = 10.0
_log = logs.get(__name__)


class Authorization(grpc.aio.ServerInterceptor):
    """Ends a call with UNAUTHENTICATED unless its token is of a role that may make it.

    Health checks need none. A method that does not exist is UNIMPLEMENTED for everybody, which gives nothing away.
    """

    def __init__(self, check: TokenCheck, callers: Callers) -> None:
        """`callers`: full name of a method -> the roles that may call it."""
        self._check = check
        self._callers = callers
        self._refused = 0
        self._told_at = -_TELL_EVERY_S

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The method's handler, or one that refuses."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.startswith(_HEALTH):
            return handler
        metadata = {key: str(value) for key, value in handler_call_details.invocation_metadata or ()}
        try:
            self._check.admit(metadata, self._callers.get(method, _OTHERS))
        except AccessDenied as denied:
            return self._refusing(method, denied)
        return handler

    def _refusing(self, method: str, denied: AccessDenied) -> Handler:
        # A stream of no message is what every kind of call may end with.
        async def refuse(_: Any, context: Context) -> None:
            self._tell(method, context.peer(), denied)
            await abort(context, denied)

        handler: Handler = grpc.stream_stream_rpc_method_handler(refuse)
        return handler

    def _tell(self, method: str, peer: str, denied: AccessDenied) -> None:
        """Logs a refusal, but not more often than every 10 s, whoever tries."""
        self._refused += 1
        now = time.monotonic()
        if now - self._told_at >= _TELL_EVERY_S:
            _log.warning("call_refused", method=method, peer=peer, reason=str(denied), refused=self._refused)
            self._told_at = now
            self._refused = 0
