"""A replay on disk: an index in msgpack, and one raw file for each field of the unrolls, oldest unroll first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from seedrl_core.errors import CheckpointError
from seedrl_learner.replay.replay import Replay
from seedrl_learner.unrolls import UnrollStore

FORMAT_VERSION = 1
_INDEX = "index.msgpack"
_MAX_INDEX_BYTES = 1 << 30
_WEIGHT = np.dtype("<f8")


def write(directory: Path, replay: Replay, store: UnrollStore) -> None:
    """Writes what `replay` holds into a new directory. Raises OSError."""
    directory.mkdir()
    rows = replay.rows(replay.items)
    for name in store.layout.fields:
        with _file(directory, name).open("wb") as file:
            for row in rows:
                file.write(store.field(name, int(row)).data)
    index = {
        "format_version": FORMAT_VERSION,
        "fields": _describe(store),
        "num_inserted": replay.num_inserted,
        "num_unrolls": len(replay),
        "weights": replay.weights(replay.items).astype(_WEIGHT).tobytes(),
    }
    (directory / _INDEX).write_bytes(msgpack.packb(index))


def read(directory: Path, replay: Replay, store: UnrollStore) -> None:
    """Fills an empty replay with the newest unrolls of `directory` that it has room for.

    Raises:
      CheckpointError: the files are damaged, of another format, or of other unrolls.
    """
    try:
        file = directory / _INDEX
        if (size := file.stat().st_size) > _MAX_INDEX_BYTES:
            raise CheckpointError(f"replay file {file}: expected at most {_MAX_INDEX_BYTES} bytes, got {size}")
        index = msgpack.unpackb(file.read_bytes(), strict_map_key=True)
        if index["format_version"] != FORMAT_VERSION:
            raise CheckpointError(
                f"replay {directory}: expected format_version {FORMAT_VERSION}, got {index['format_version']}"
            )
        if index["fields"] != _describe(store):
            raise CheckpointError(f"replay {directory}: expected unrolls of {_describe(store)}, got {index['fields']}")
        saved, num_inserted = int(index["num_unrolls"]), int(index["num_inserted"])
        weights = np.frombuffer(index["weights"], _WEIGHT)
        if not 0 <= saved <= num_inserted or not np.all(np.isfinite(weights) & (weights > 0)):
            raise CheckpointError(f"replay file {file}: expected unrolls that were inserted, of weights above 0")
        _check_sizes(directory, store, saved, len(weights))
        count = min(saved, replay.capacity)
        rows = store.acquire(count)
        for name in store.layout.fields:
            _read_field(_file(directory, name), store, name, rows, skip=saved - count)
        replay.restore(num_inserted, rows.tolist(), weights[saved - count :])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise CheckpointError(f"replay {directory} cannot be read: {error}") from error


def _check_sizes(directory: Path, store: UnrollStore, num_unrolls: int, num_weights: int) -> None:
    """Before anything is read, so that a damaged snapshot changes nothing."""
    if num_weights != num_unrolls:
        raise CheckpointError(f"replay {directory}: expected {num_unrolls} weights, got {num_weights}")
    for name in store.layout.fields:
        file, expected = _file(directory, name), num_unrolls * store.field(name, 0).nbytes
        if (size := file.stat().st_size) != expected:
            raise CheckpointError(f"replay file {file}: expected {expected} bytes, got {size}")


def _read_field(file: Path, store: UnrollStore, name: str, rows: Any, skip: int) -> None:
    with file.open("rb") as stream:
        stream.seek(skip * store.field(name, 0).nbytes)
        for row in rows:
            stream.readinto(store.field(name, int(row)).data)


def _describe(store: UnrollStore) -> dict[str, list[Any]]:
    return {name: [dtype.str, list(shape)] for name, (dtype, shape) in store.layout.fields.items()}


def _file(directory: Path, field: str) -> Path:
    return directory / f"{field.replace('/', '-')}.raw"
