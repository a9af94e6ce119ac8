"""Shared memory of a session: what is written is read in place, and nothing that a client does can hurt the reader."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from held_memory import regions_of

from seedrl_core.errors import BadRequest
from seedrl_core.shared_memory import HEADER_BYTES, OwnRegion, PeerRegion, Reference
from seedrl_core.spec import TensorSpec

SESSION_ID = bytes(range(16))
NUM_ENVS = 3
LEAVES = (
    TensorSpec("observation/camera", np.dtype(np.uint8), (5, 7)),
    TensorSpec("observation/speed", np.dtype(np.float32), ()),
)
MAX_BYTES = 1 << 20


@pytest.fixture
def own() -> Iterator[OwnRegion]:
    """A region of this process."""
    region = OwnRegion(SESSION_ID, LEAVES, NUM_ENVS)
    yield region
    region.close()


def mapped(region: OwnRegion) -> PeerRegion:
    """The same region as its reader sees it."""
    return PeerRegion(SESSION_ID, os.getpid(), region.fd, region.num_bytes, MAX_BYTES)


def observation(seed: int) -> tuple[np.ndarray, ...]:
    """Of every leaf, something that differs by seed."""
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(0, 255, (NUM_ENVS, *leaf.shape)).astype(leaf.dtype) for leaf in LEAVES)


def test_what_is_written_is_read_in_place(own: OwnRegion) -> None:
    """Each leaf comes out as it went in; a view shows what is written after it was taken."""
    peer = mapped(own)
    for generation in range(3):
        leaves = observation(generation)
        views = peer.read(own.write(leaves, generation), LEAVES, NUM_ENVS)
        for view, leaf in zip(views, leaves, strict=True):
            assert bytes(view) == leaf.tobytes()
            assert view.readonly
    own.write(observation(9), 9)
    assert bytes(views[0]) == observation(9)[0].tobytes()


def bad_references() -> dict[str, Reference]:
    """References that a client could send; the good one is at (64, 192), generation 1, in 256 bytes."""
    return {
        "header": Reference((0, 192), 1),
        "end of the header": Reference((HEADER_BYTES - 1, 192), 1),
        "past the end": Reference((64, 256), 1),
        "over the end by a byte": Reference((64, 256 - 4 * NUM_ENVS + 1), 1),
        "largest number": Reference((2**64 - 1, 192), 1),
        "largest number in two's complement": Reference((2**63, 192), 1),
        "a leaf too few": Reference((64,), 1),
        "a leaf too many": Reference((64, 192, 64), 1),
        "none": Reference((), 1),
        "an older generation": Reference((64, 192), 0),
        "a later generation": Reference((64, 192), 2),
    }


@pytest.mark.parametrize("reference", bad_references().values(), ids=bad_references().keys())
def test_a_reference_out_of_the_region_is_refused(own: OwnRegion, reference: Reference) -> None:
    """Offsets are checked against the size that was mapped, the generation against the one in the region."""
    good = own.write(observation(0), 1)
    assert (good, own.num_bytes) == (Reference((64, 192), 1), 256)
    peer = mapped(own)
    with pytest.raises(BadRequest, match=r"shared\.(offset|generation): expected"):
        peer.read(reference, LEAVES, NUM_ENVS)
    assert len(peer.read(good, LEAVES, NUM_ENVS)) == 2


def test_more_environments_than_the_region_has_room_for_are_refused(own: OwnRegion) -> None:
    """The size of what is read comes from the learner's spec and the session, never from the client's word."""
    good = own.write(observation(0), 1)
    with pytest.raises(BadRequest, match=r"expected 64 to \d+ for 140 bytes of observation/camera"):
        mapped(own).read(good._replace(offsets=(200, 200)), LEAVES, 4)


def test_a_mapped_region_cannot_be_taken_away(own: OwnRegion) -> None:
    """The client can neither shrink nor grow it, nor lift the seals; after it closed the region, reading goes on."""
    peer = mapped(own)
    for size in (0, own.num_bytes - 1, own.num_bytes + 1):
        with pytest.raises(PermissionError):
            os.ftruncate(own.fd, size)
    other = OwnRegion(SESSION_ID, LEAVES, NUM_ENVS)
    leaves = observation(4)
    reference, peer = other.write(leaves, 1), mapped(other)
    other.close()
    assert bytes(peer.read(reference, LEAVES, NUM_ENVS)[0]) == leaves[0].tobytes()


def memfd(size: int = 256, name: str = "seedrl", content: bytes = SESSION_ID, seals: int = 0, flags: int = 0) -> int:
    """A file in memory such as a careless or hostile client could offer."""
    fcntl = pytest.importorskip("fcntl")
    fd = os.memfd_create(name, os.MFD_ALLOW_SEALING | flags)
    os.ftruncate(fd, size)
    if content:
        os.pwrite(fd, content, 0)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


SHRINK = 0x0002


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: memfd(), "expected F_SEAL_SHRINK"),
        (lambda _: memfd(seals=SHRINK, size=255), "expected 256 bytes at .*, got 255"),
        (lambda _: memfd(seals=SHRINK, content=bytes(16)), "expected the session's id"),
        (lambda _: memfd(seals=SHRINK, name="other"), "expected a memfd named seedrl"),
        (lambda _: memfd(seals=SHRINK, name="seedrl2"), "expected a memfd named seedrl"),
        (lambda path: os.open(path / "file", os.O_RDWR | os.O_CREAT), "expected a memfd named seedrl"),
        (lambda _: os.pipe()[0], "expected a memfd named seedrl"),
        (lambda _: 1_000_000, "cannot be read here: No such file"),
    ],
    ids=["not sealed", "too small", "of another session", "another name", "longer name", "a file", "a pipe", "nothing"],
)
def test_what_is_not_a_sealed_region_of_this_session_is_not_mapped(tmp_path, make, message: str) -> None:
    """A region that could shrink under its reader, or that belongs to somebody else, is refused with the reason."""
    fd = make(tmp_path)
    with pytest.raises(BadRequest, match=f"shared memory: .*{message}"):
        PeerRegion(SESSION_ID, os.getpid(), fd, 256, MAX_BYTES)


def test_a_file_that_takes_a_regions_name_is_not_mapped(tmp_path: Path) -> None:
    """A file on disk can be called like a memfd, and could be truncated: it has no seals."""
    path = tmp_path / "memfd:seedrl "
    path.write_bytes(SESSION_ID + bytes(240))
    fd = os.open(path, os.O_RDWR)
    with pytest.raises(BadRequest, match="shared memory: "):
        PeerRegion(SESSION_ID, os.getpid(), fd, 256, MAX_BYTES)


def test_huge_pages_are_not_mapped() -> None:
    """They may run out when they are touched, which would end the reader."""
    try:
        fd = memfd(size=2 << 20, seals=SHRINK, content=b"", flags=os.MFD_HUGETLB)
    except OSError:
        pytest.skip("no huge pages here")
    with pytest.raises(BadRequest, match=f"expected pages of {mmap.PAGESIZE} bytes"):
        PeerRegion(SESSION_ID, os.getpid(), fd, 2 << 20, 4 << 20)


@pytest.mark.parametrize("num_bytes", [0, HEADER_BYTES - 1, MAX_BYTES + 1, 2**64 - 1])
def test_a_size_out_of_range_is_refused(own: OwnRegion, num_bytes: int) -> None:
    """Before anything is opened."""
    with pytest.raises(BadRequest, match="shared memory: expected 64 to 1048576 bytes"):
        PeerRegion(SESSION_ID, os.getpid(), own.fd, num_bytes, MAX_BYTES)


def test_a_process_that_is_not_there_is_refused() -> None:
    """As a client on another host looks from here."""
    with pytest.raises(BadRequest, match="cannot be read here"):
        PeerRegion(SESSION_ID, 2**31 - 1, 3, 256, MAX_BYTES)


def test_nothing_is_left_of_a_region() -> None:
    """It ends with its last user: no mapping, no descriptor, and it never had a name."""
    own = OwnRegion(SESSION_ID, LEAVES, NUM_ENVS)
    region = os.fstat(own.fd).st_ino
    peer = mapped(own)
    views = peer.read(own.write(observation(0), 1), LEAVES, NUM_ENVS)
    own.close()
    del peer
    assert region in regions_of(), "the views still hold it"
    del views
    assert region not in regions_of()
