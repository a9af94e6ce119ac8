"""Files that are written whole or not at all."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    """Writes a file; what was there stays when there is no room, or when the process ends meanwhile. Raises OSError."""
    temporary = file.with_name(f".tmp-{file.name}")
    try:
        temporary.write_text(text)
        temporary.replace(file)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
