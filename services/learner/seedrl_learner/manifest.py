"""The manifest of a checkpoint: size and SHA-256 of each of its files, by which damage is found before it is loaded."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from seedrl_core.errors import CheckpointDamaged

NAME = "manifest.json"


class FileSum(BaseModel):
    """What a file was when it was written."""

    num_bytes: int
    sha256: str


_SUMS = TypeAdapter(dict[str, FileSum])


def write(directory: Path) -> None:
    """Sums up all files below `directory`, as the last thing that is written there. Raises OSError."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    sums = {
        str(file.relative_to(directory)): FileSum(num_bytes=file.stat().st_size, sha256=_sha256(file)) for file in files
    }
    (directory / NAME).write_bytes(_SUMS.dump_json(sums, indent=1))


def verify(directory: Path) -> None:
    """Compares the files with the manifest, sizes first.

    Raises:
      CheckpointDamaged: one is missing or another one than was written, or the manifest itself is.
    """
    try:
        sums = _SUMS.validate_json((directory / NAME).read_bytes())
        for name, expected in sums.items():
            if (size := (directory / name).stat().st_size) != expected.num_bytes:
                raise CheckpointDamaged(f"{directory / name}: expected {expected.num_bytes} bytes, got {size}")
        for name, expected in sums.items():
            if (found := _sha256(directory / name)) != expected.sha256:
                raise CheckpointDamaged(f"{directory / name}: expected SHA-256 {expected.sha256}, got {found}")
    except OSError as error:
        raise CheckpointDamaged(f"{error.filename}: {error.strerror}") from error
    except ValidationError as error:
        raise CheckpointDamaged(f"{directory / NAME}: expected sizes and sums of files, got something else") from error


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
