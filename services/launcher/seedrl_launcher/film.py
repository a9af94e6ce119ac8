"""Films of recordings, as GIF or MP4. Pillow and ffmpeg are imported when there is something to draw."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from seedrl_core import recording
from seedrl_core.errors import ConfigError, ServiceFailed

if TYPE_CHECKING:
    from PIL.Image import Image

_GIF_COLOURS = 64


def check_film(out: Path) -> None:
    """ConfigError unless `out` names a film that can be written here."""
    if out.suffix not in (".gif", ".mp4"):
        raise ConfigError(f"--out: expected a file that ends with .gif or .mp4, got {out}")
    try:
        import PIL  # noqa: F401

        if out.suffix == ".mp4":
            import imageio_ffmpeg  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"a film {out.suffix} needs {error.name}: pip install 'seedrl[video]'") from error


def write_film(recorded: Path, out: Path, title: str, frames_per_s: float, max_steps: int | None = None) -> int:
    """Draws the steps of a recording, at most `max_steps`, into `out` and returns how many there are.

    Raises:
      ServiceFailed: nothing was recorded.
    """
    from seedrl_launcher.film_frame import FrameDrawer

    drawer = FrameDrawer(title)
    steps = islice(recording.read(recorded), max_steps) if recorded.exists() else iter(())
    frames = _Counted(drawer.draw(step) for step in steps)
    first = next(frames, None)
    if first is None:
        raise ServiceFailed("no step was recorded")
    out.parent.mkdir(parents=True, exist_ok=True)
    (_write_gif if out.suffix == ".gif" else _write_mp4)(out, first, frames, frames_per_s)
    return frames.count


class _Counted:
    """Frames, and how many have been taken."""

    def __init__(self, frames: Iterator[Image]) -> None:
        self._frames = frames
        self.count = 0

    def __iter__(self) -> Iterator[Image]:
        return self

    def __next__(self) -> Image:
        frame = next(self._frames)
        self.count += 1
        return frame


def _write_gif(out: Path, first: Image, others: Iterator[Image], frames_per_s: float) -> None:
    first.quantize(_GIF_COLOURS).save(
        out,
        save_all=True,
        append_images=(frame.quantize(_GIF_COLOURS) for frame in others),
        duration=round(1000 / frames_per_s),
        loop=0,
    )


def _write_mp4(out: Path, first: Image, others: Iterator[Image], frames_per_s: float) -> None:
    import imageio_ffmpeg

    writer = imageio_ffmpeg.write_frames(str(out), first.size, fps=frames_per_s)
    writer.send(None)
    try:
        for frame in chain([first], others):
            writer.send((frame if frame.size == first.size else frame.resize(first.size)).tobytes())
    finally:
        writer.close()
