"""Recordings and the films that are drawn of them."""

from __future__ import annotations

from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from seedrl_core import recording
from seedrl_core.errors import ConfigError, ServiceFailed
from seedrl_core.recording import RecordedStep
from seedrl_core.spec import Array
from seedrl_launcher.film import check_film, write_film
from seedrl_launcher.film_frame import HEIGHT, PANEL_WIDTH, FrameDrawer

CHOSEN = (255, 170, 70)


def steps(count: int, preference: tuple[float, ...] = (0.25, 0.75), names: tuple[str, ...] = ()) -> list[RecordedStep]:
    """Two episodes of as many steps in sum."""
    rng = np.random.default_rng(0)
    return [
        RecordedStep(
            picture=rng.integers(0, 256, (20, 30, 3), np.uint8),
            first=t in (0, count // 2),
            last=t in (count // 2 - 1, count - 1),
            reward=float(t),
            action=(1.0, -0.5),
            value=1.5 * t,
            preference=preference,
            action_names=names,
        )
        for t in range(count)
    ]


def recorded(path: Path, played: list[RecordedStep]) -> Path:
    """A recording of them."""
    with path.open("wb") as file:
        for step in played:
            recording.append(file, step)
    return path


def test_a_recording_comes_back_equal(tmp_path: Path) -> None:
    """Also where the actor was killed while it wrote the last step, which is left out."""
    played = steps(6, names=("NOOP", "FIRE"))
    path = recorded(tmp_path / "recording", played)
    for cut in (0, 10):
        path.write_bytes(path.read_bytes()[: path.stat().st_size - cut])
        read = list(recording.read(path))
        assert len(read) == len(played) - bool(cut)
        for got, expected in zip(read, played, strict=False):
            np.testing.assert_array_equal(got.picture, expected.picture)
            assert (got.first, got.last, got.reward) == (expected.first, expected.last, expected.reward)
            assert (got.action, got.value, got.preference) == (expected.action, expected.value, expected.preference)
            assert got.action_names == expected.action_names


def test_a_gif_has_a_frame_a_step(tmp_path: Path) -> None:
    """At the speed asked for, no more than asked for."""
    path = recorded(tmp_path / "recording", steps(8))
    assert write_film(path, tmp_path / "all.gif", "Env-v0", frames_per_s=20.0) == 8
    assert write_film(path, tmp_path / "some.gif", "Env-v0", frames_per_s=20.0, max_steps=5) == 5
    for name, count in (("all.gif", 8), ("some.gif", 5)):
        with Image.open(tmp_path / name) as film:
            assert getattr(film, "n_frames", 1) == count
            assert film.info["duration"] == 50
            assert film.size == (640 + PANEL_WIDTH, HEIGHT)


def test_an_mp4_has_a_frame_a_step(tmp_path: Path) -> None:
    """Of the size of the frames, at the speed asked for."""
    path = recorded(tmp_path / "recording", steps(8))
    assert write_film(path, tmp_path / "film.mp4", "Env-v0", frames_per_s=20.0) == 8
    frames = imageio_ffmpeg.read_frames(str(tmp_path / "film.mp4"))
    about = next(frames)
    assert (about["size"], about["fps"]) == ((640 + PANEL_WIDTH, HEIGHT), 20.0)
    assert len(list(frames)) == 8


@pytest.mark.parametrize(
    ("preference", "chosen", "length"),
    [((0.25, 0.75), 1, 0.75), ((0.5, 0.1, 0.4), 0, 0.5), ((-3.0, 2.0, 1.0), 1, 1.0)],
)
def test_bars_are_as_long_as_probabilities(preference: tuple[float, ...], chosen: int, length: float) -> None:
    """The preferred action's stands out; the best of action values fills the width."""
    frame = np.asarray(FrameDrawer("Env-v0").draw(steps(1, preference)[0]))
    bar = (frame == CHOSEN).all(axis=-1)
    across = np.flatnonzero(bar.any(axis=0))
    assert across.max() - across.min() == pytest.approx(length * 248, abs=1)
    down = np.flatnonzero(bar.any(axis=1))
    assert 244 + 20 * chosen <= down.min() <= down.max() < 244 + 20 * (chosen + 1)


def test_actions_have_the_names_that_the_environment_gives_them() -> None:
    """Names take more room than numbers, which stand for actions that are not all named; a long one ends at its bar."""
    frames = {
        names: np.asarray(FrameDrawer("Env-v0").draw(steps(1, names=names)[0]))[244:, 640:]
        for names in ((), ("NOOP",), ("NOOP", "FIRE"), ("NOOP", "FIRE" * 20))
    }
    begin = {names: np.flatnonzero((frame == CHOSEN).all(axis=-1).any(axis=0)).min() for names, frame in frames.items()}
    assert list(begin.values()) == [14 + 28, 14 + 28, 14 + 124, 14 + 124]
    numbered, misnamed, named, long = frames.values()
    np.testing.assert_array_equal(numbered, misnamed)
    words = (slice(20, 40), slice(14, 14 + 124))
    assert (named[words] != numbered[words]).any() and (long[words] != named[words]).any()
    np.testing.assert_array_equal(long[:, 14 + 124 :], named[:, 14 + 124 :])


@pytest.mark.parametrize("count", [0, 18, 300])
def test_any_number_of_actions_fits(count: int) -> None:
    """Also more than there are pixels, and none."""
    frame = FrameDrawer("Env-v0").draw(steps(1, (1.0 / max(count, 1),) * count)[0])
    assert frame.size == (640 + PANEL_WIDTH, HEIGHT)


def test_other_names_and_empty_recordings_are_refused(tmp_path: Path) -> None:
    """In words that say what was expected."""
    with pytest.raises(ConfigError, match="expected a file that ends with .gif or .mp4, got film.avi"):
        check_film(Path("film.avi"))
    with pytest.raises(ServiceFailed, match="no step was recorded"):
        write_film(recorded(tmp_path / "recording", []), tmp_path / "film.gif", "Env-v0", 30.0)


def test_few_pixels_stay_sharp() -> None:
    """Each becomes a block of one colour."""
    picture: Array = np.zeros((8, 8, 3), np.uint8)
    picture[::2] = 255
    step = RecordedStep(picture, True, False, 0.0, (0.0,), 0.0, ())
    drawn = np.asarray(FrameDrawer("Env-v0").draw(step))[:, :400]
    assert set(np.unique(drawn)) == {0, 255}
