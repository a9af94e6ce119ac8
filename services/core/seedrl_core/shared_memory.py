"""A session's shared memory: a client on the learner's host leaves observations there, and the learner reads them.

The region is an anonymous file in memory (a memfd of Linux) that belongs to the client:
- it has no name, so nothing is left of it once the processes that hold it are gone, however they went;
- it is sealed against shrinking, so what a reader has mapped stays mapped whatever the client does;
- it begins with the session's id: who says Hello for the session has written the region, so both are on one host.

Layout: the session's id (16 bytes), the generation (uint64, little-endian), zeros up to HEADER_BYTES; observations.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seedrl_core.errors import BadRequest
from seedrl_core.spec import Array, TensorSpec

if sys.platform == "linux":
    import fcntl

HEADER_BYTES = 64
SESSION_ID_BYTES = 16
_NAME = "seedrl"
_GENERATION = struct.Struct("<Q")
# A cache line: leaves do not share one.
_ALIGNMENT = 64


class Reference(NamedTuple):
    """Where a tick's observation stands in the region: an offset a leaf, and the generation that it was written as."""

    offsets: tuple[int, ...]
    generation: int


class OwnRegion:
    """The region of a client.

    Attributes:
      fd: its descriptor in this process.
      num_bytes: its size.
    """

    def __init__(self, session_id: bytes, leaves: Sequence[TensorSpec], num_envs: int) -> None:
        """Room for one observation of `num_envs` environments; OSError where the system has no such memory."""
        if sys.platform != "linux":
            raise OSError("shared memory between processes needs Linux")
        offsets, end = [], HEADER_BYTES
        for leaf in leaves:
            offsets.append(end)
            end += -(-num_envs * leaf.num_bytes // _ALIGNMENT) * _ALIGNMENT
        self.num_bytes = end
        self._offsets = tuple(offsets)
        self.fd = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, self.num_bytes)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self._memory = mmap.mmap(self.fd, self.num_bytes)
        except BaseException:
            os.close(self.fd)
            raise
        self._memory[:SESSION_ID_BYTES] = session_id
        self._leaves: tuple[Array, ...] = tuple(
            np.ndarray((num_envs, *leaf.shape), leaf.dtype, self._memory, offset)
            for leaf, offset in zip(leaves, offsets, strict=True)
        )

    def write(self, observation: Sequence[Array], generation: int) -> Reference:
        """Copies an array [N, *shape] a leaf into the region; the one before must have been answered."""
        for mine, leaf in zip(self._leaves, observation, strict=True):
            np.copyto(mine, leaf)
        _GENERATION.pack_into(self._memory, SESSION_ID_BYTES, generation)
        return Reference(self._offsets, generation)

    def close(self) -> None:
        """Gives the memory back, as far as this process is concerned."""
        self._leaves = ()
        self._memory.close()
        os.close(self.fd)


class PeerRegion:
    """The region of a client, as the learner reads it. It is unmapped when nothing refers to it or to its views."""

    def __init__(self, session_id: bytes, pid: int, fd: int, num_bytes: int, max_bytes: int) -> None:
        """Maps the region behind descriptor `fd` of process `pid`.

        Raises:
          BadRequest: there is no such region here, or one that is not safe to read; says why.
        """
        if not HEADER_BYTES <= num_bytes <= max_bytes:
            raise BadRequest(f"shared memory: expected {HEADER_BYTES} to {max_bytes} bytes, got {num_bytes}")
        self._num_bytes = num_bytes
        memory = _map(pid, fd, num_bytes)
        if memory[:SESSION_ID_BYTES] != session_id:
            raise BadRequest("shared memory: expected the session's id at its beginning, got another")
        self._view = memoryview(memory)

    def read(self, reference: Reference, leaves: Sequence[TensorSpec], num_envs: int) -> list[memoryview]:
        """The bytes of each leaf where they stand; BadRequest when the reference is not one into this region."""
        if len(reference.offsets) != len(leaves):
            raise BadRequest(f"shared.offset: expected one for each of {len(leaves)} leaves, got {reference.offsets}")
        (generation,) = _GENERATION.unpack_from(self._view, SESSION_ID_BYTES)
        if generation != reference.generation:
            raise BadRequest(
                f"shared.generation: expected {generation}, which is in the region, got {reference.generation}"
            )
        views = []
        for leaf, offset in zip(leaves, reference.offsets, strict=True):
            size = num_envs * leaf.num_bytes
            last = self._num_bytes - size
            if not HEADER_BYTES <= offset <= last:
                raise BadRequest(
                    f"shared.offset: expected {HEADER_BYTES} to {last} for {size} bytes of {leaf.path}, got {offset}"
                )
            views.append(self._view[offset : offset + size])
        return views


def _map(pid: int, fd: int, num_bytes: int) -> mmap.mmap:
    """Maps a sealed memfd of another process for reading; anything else is a BadRequest."""
    path = f"/proc/{pid}/fd/{fd}"
    try:
        # Never opens what merely happens to have this number: a device, a pipe, somebody's file.
        if not os.readlink(path).startswith(f"/memfd:{_NAME} "):
            raise BadRequest(f"shared memory: expected a memfd named {_NAME} at {path}, got {os.readlink(path)}")
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            _check_safe(opened, path, num_bytes)
            return mmap.mmap(opened, num_bytes, prot=mmap.PROT_READ)
        finally:
            os.close(opened)
    except OSError as error:
        raise BadRequest(f"shared memory: {path} cannot be read here: {error.strerror or error}") from error


def _check_safe(fd: int, path: str, num_bytes: int) -> None:
    """Reading `num_bytes` of a mapping of `fd` can never fail: whole, sealed, of this user, made of ordinary pages."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        raise BadRequest(f"shared memory: expected a file of user {os.geteuid()} at {path}, got one of {status.st_uid}")
    if status.st_size < num_bytes:
        raise BadRequest(f"shared memory: expected {num_bytes} bytes at {path}, got {status.st_size}")
    assert sys.platform == "linux"
    if not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        raise BadRequest(f"shared memory: expected F_SEAL_SHRINK on {path}: it could shrink while it is read")
    # Huge pages may run out at the moment they are touched.
    if os.fstatvfs(fd).f_bsize != mmap.PAGESIZE:
        raise BadRequest(f"shared memory: expected pages of {mmap.PAGESIZE} bytes at {path}")
