"""Checkpoints: whole or not at all, everything restored, the last k kept, and never a silent fresh start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from seedrl_core.codec import FIRST, TickArrays
from seedrl_core.config import load_settings
from seedrl_core.errors import CheckpointDamaged, CheckpointError, ConfigError
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner import checkpoints as checkpoints_module
from seedrl_learner import manifest
from seedrl_learner.run import Run

SPEC = EnvironmentSpec(
    "Counter-v0",
    (TensorSpec("observation", np.dtype(np.float32), (2,)),),
    (TensorSpec("action", np.dtype(np.int64), (), (0.0,), (1.0,)),),
    action_repeat=4,
)


def make_run(run_dir: Path, **overrides: object) -> Run:
    """A run of a small network."""
    keys = {"run_dir": str(run_dir), "network.mlp_sizes": [4], "keep_checkpoints": 2, "max_envs": 4, **overrides}
    return Run(load_settings(None, {f"learner.{key}": value for key, value in keys.items()}).learner)


def disturb(run: Run) -> list[np.ndarray]:
    """Gives every variable of network and optimizer a value of its own; returns the values."""
    machinery = run.machinery
    assert machinery is not None
    rng = np.random.default_rng(1)
    variables = [*machinery.agent.network.variables, *machinery.optimization.variables]
    for variable in variables:
        variable.assign(tf.cast(rng.integers(1, 100, variable.shape), variable.dtype))
    return [variable.numpy() for variable in variables]


@pytest.mark.parametrize("normalize", [False, True])
def test_variables_optimizer_and_counters_are_restored(tmp_path: Path, normalize: bool) -> None:
    """A resumed run has the same network, statistics of its inputs included, optimizer state, counters and returns."""
    run = make_run(tmp_path, **{"network.normalize_observations": normalize})
    run.build(SPEC)
    values = disturb(run)
    run.progress.env_steps, run.progress.policy_version = 1234, 56
    run.progress.add_episode(7.5)
    path = run.save_checkpoint()
    resumed = make_run(tmp_path, resume=True, **{"network.normalize_observations": normalize})
    machinery = resumed.machinery
    assert machinery is not None
    assert machinery.spec == SPEC
    restored = [*machinery.agent.network.variables, *machinery.optimization.variables]
    assert len(restored) == len(values) > 8
    for variable, value in zip(restored, values, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    progress = resumed.progress
    assert (progress.env_steps, progress.policy_version, progress.episodes) == (1234, 56, 1)
    assert (progress.mean_return, resumed.last_checkpoint) == (7.5, path)


def test_evaluation_leaves_every_variable_as_the_checkpoint_has_it(tmp_path: Path) -> None:
    """A serving learner has the statistics of its inputs from training and does not add to them."""
    run = make_run(tmp_path, **{"network.normalize_observations": True})
    run.build(SPEC)
    disturb(run)
    run.save_checkpoint()
    served = make_run(tmp_path, mode="serve").machinery
    assert served is not None and run.machinery is not None
    slots = served.inference.open(2, greedy=True)
    for t in range(60):
        observation = np.full((2, 2), 1e3 * t, np.float32)
        flags = np.full(2, FIRST if t == 0 else 0, np.uint8)
        served.inference.run([(slots, TickArrays(t, (observation,), np.zeros(2, np.float32), flags))])
    trained = run.machinery.agent.network.variables
    assert sum(not variable.trainable for variable in trained) == 3
    for variable, expected in zip(served.agent.network.variables, trained, strict=True):
        np.testing.assert_array_equal(variable, expected)


def test_the_last_k_are_kept(tmp_path: Path) -> None:
    """Older checkpoints are removed, the newest is the one resumed from."""
    run = make_run(tmp_path)
    run.build(SPEC)
    for steps in (9, 10, 100):
        run.progress.env_steps = steps
        run.save_checkpoint()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "step-000000000010-update-000000000",
        "step-000000000100-update-000000000",
    ]
    assert make_run(tmp_path, resume=True).progress.env_steps == 100


def test_a_save_that_dies_midway_leaves_the_last_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between writing variables and the rename: resume uses the checkpoint before, and the next save works."""
    run = make_run(tmp_path)
    run.build(SPEC)
    run.progress.env_steps = 1
    run.save_checkpoint()
    run.progress.env_steps = 2

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            run.save_checkpoint()
    assert any(path.name.startswith(".tmp-") for path in (tmp_path / "checkpoints").iterdir())
    assert make_run(tmp_path, resume=True).progress.env_steps == 1
    saved = run.save_checkpoint()
    assert saved.name == "step-000000000002-update-000000000"
    assert not any(path.name.startswith(".tmp-") for path in (tmp_path / "checkpoints").iterdir())
    monkeypatch.setattr(Path, "rename", killed)
    assert run.save_checkpoint() == saved, "a whole checkpoint is not written again"


def test_a_full_disk_is_an_error_that_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An OSError while saving becomes a CheckpointError; nothing half-written stays behind."""
    run = make_run(tmp_path)
    run.build(SPEC)
    run.save_checkpoint()

    def no_space(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints_module, "_flush", no_space)
    run.progress.env_steps = 5
    with pytest.raises(CheckpointError, match="No space left on device"):
        run.save_checkpoint()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000000000000-update-000000000"]


def test_a_mistyped_path_is_an_error_never_a_fresh_start(tmp_path: Path) -> None:
    """No checkpoint where one is asked for: a sentence with the path."""
    with pytest.raises(CheckpointError, match="there is nothing to start from"):
        make_run(tmp_path / "runn", resume=True)
    with pytest.raises(CheckpointError, match="no checkpoint at .*typo"):
        make_run(tmp_path, checkpoint=str(tmp_path / "typo"))


def test_a_run_that_has_checkpoints_is_not_started_over(tmp_path: Path) -> None:
    """Without resume, a used run directory is refused, also when starting from a checkpoint that is named."""
    run = make_run(tmp_path)
    run.build(SPEC)
    path = run.save_checkpoint()
    with pytest.raises(CheckpointError, match="already has checkpoints: set learner.resume"):
        make_run(tmp_path)
    with pytest.raises(CheckpointError, match="already has checkpoints: set learner.resume"):
        make_run(tmp_path, checkpoint=str(path))
    with pytest.raises(ConfigError, match="expected one of them, got both"):
        make_run(tmp_path, checkpoint=str(path), resume=True)
    assert make_run(tmp_path / "other", checkpoint=str(path)).last_checkpoint == path


def test_a_restarted_run_goes_on_from_its_own_checkpoints(tmp_path: Path) -> None:
    """With resume_or_start a run begins at the checkpoint that is named, and later goes on from what it has saved."""
    (first, other), began = two_checkpoints(tmp_path / "other"), {"resume_or_start": True}
    run = make_run(tmp_path / "run", **began, checkpoint=str(first))
    assert run.last_checkpoint == first
    run.progress.env_steps = 7
    saved = run.save_checkpoint()
    assert make_run(tmp_path / "run", **began, checkpoint=str(other)).last_checkpoint == saved


def test_another_network_does_not_load(tmp_path: Path) -> None:
    """A checkpoint of other layers is refused, not loaded in part."""
    run = make_run(tmp_path)
    run.build(SPEC)
    run.save_checkpoint()
    with pytest.raises(CheckpointError, match="does not fit this network"):
        make_run(tmp_path, resume=True, **{"network.mlp_sizes": [4, 4]})
    with pytest.raises(CheckpointError, match="does not fit this network"):
        make_run(tmp_path, resume=True, **{"network.mlp_sizes": [5]})


def damage(path: Path, name: str, how: str) -> None:
    """Does to a file what a broken disk or an unfinished copy does."""
    file = path / name
    content = bytearray(file.read_bytes())
    if how == "gone":
        file.unlink()
        return
    if how == "shorter":
        del content[len(content) // 2 :]
    else:
        content[len(content) // 2] ^= 1
    file.write_bytes(content)


def two_checkpoints(run_dir: Path) -> tuple[Path, Path]:
    """Of steps 1 and 2."""
    run = make_run(run_dir)
    run.build(SPEC)
    run.progress.env_steps = 1
    before = run.save_checkpoint()
    disturb(run)
    run.progress.env_steps = 2
    return before, run.save_checkpoint()


FILES = ("state.json", "variables.index", "variables.data-00000-of-00001", "manifest.json")


@pytest.mark.parametrize("how", ["gone", "shorter", "one bit"])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_newest_checkpoint_is_passed_over(
    tmp_path: Path, name: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run goes on from the one before, with a warning that names both; asked for by path it is an error."""
    before, newest = two_checkpoints(tmp_path)
    damage(newest, name, how)
    with pytest.raises(CheckpointDamaged, match=newest.name):
        make_run(tmp_path / "other", checkpoint=str(newest))
    served = make_run(tmp_path, mode="serve")
    assert (served.last_checkpoint, served.progress.env_steps) == (before, 1)
    assert newest.exists(), "an evaluation leaves the run as it is"
    capsys.readouterr()
    resumed = make_run(tmp_path, resume=True)
    assert (resumed.last_checkpoint, resumed.progress.env_steps) == (before, 1)
    (warning,) = [line for line in capsys.readouterr().out.splitlines() if "checkpoint_damaged" in line]
    assert str(newest) in warning and f"instead={before}" in warning


def test_what_is_saved_after_a_fall_back_is_the_newest(tmp_path: Path) -> None:
    """Damaged files of a later step neither stand in for a new checkpoint nor crowd it out."""
    _, damaged = two_checkpoints(tmp_path)
    damage(damaged, "variables.index", "gone")
    resumed = make_run(tmp_path, resume=True, keep_checkpoints=1)
    assert make_run(tmp_path, resume=True).progress.env_steps == 1, "nothing has been saved yet"
    resumed.progress.env_steps = 2
    saved = resumed.save_checkpoint()
    assert saved == damaged
    assert make_run(tmp_path, resume=True).last_checkpoint == saved
    kept = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert kept == {saved.name, f"damaged-{saved.name}"}


@pytest.mark.parametrize("asked_for", [{"resume": True}, {"resume_or_start": True}, {"mode": "serve"}])
def test_no_whole_checkpoint_is_an_error_every_time(tmp_path: Path, asked_for: dict[str, object]) -> None:
    """However often it is tried: one sentence with the newest one's damage, and everything stays where it is."""
    for path in two_checkpoints(tmp_path):
        damage(path, "state.json", "shorter")
    for _ in range(2):
        with pytest.raises(CheckpointError, match="none of the 2 checkpoints .* is whole; the newest: .*000002.*bytes"):
            make_run(tmp_path, **asked_for)
    assert len(list((tmp_path / "checkpoints").glob("step-*"))) == 2


def test_a_saved_replay_is_part_of_what_is_checked(tmp_path: Path) -> None:
    """One bit of an unroll in it is damage like any other."""
    overrides = {"agent": "r2d2", "replay.save": True, "replay.capacity_unrolls": 8, "replay.min_unrolls": 1}
    run = make_run(tmp_path, **overrides, batch_unrolls=1)
    run.build(SPEC)
    path = run.save_checkpoint()
    damage(path, "replay/index.msgpack", "one bit")
    with pytest.raises(CheckpointError, match="index.msgpack: expected SHA-256"):
        make_run(tmp_path, **overrides, batch_unrolls=1, resume=True)


def test_a_checkpoint_of_the_version_before_loads_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Format 1 had no manifest: nothing can be compared, which is said; damage that shows by itself is an error."""
    _, newest = two_checkpoints(tmp_path)
    (newest / "manifest.json").unlink()
    state = (newest / "state.json").read_text()
    (newest / "state.json").write_text(state.replace('"format_version": 3', '"format_version": 1'))
    assert make_run(tmp_path, resume=True).progress.env_steps == 2
    assert "checkpoint_without_sums" in capsys.readouterr().out
    (newest / "state.json").write_text("")
    assert make_run(tmp_path, resume=True).progress.env_steps == 1


@pytest.mark.parametrize("normalize_values", [False, True])
def test_a_checkpoint_with_other_statistics_of_values_is_an_error(tmp_path: Path, normalize_values: bool) -> None:
    """Format 2 had mean squares of them: it is refused where a network has such statistics, and read where not."""
    run = make_run(tmp_path, **{"vtrace.normalize_values": normalize_values})
    run.build(SPEC)
    path = run.save_checkpoint()
    state = (path / "state.json").read_text()
    (path / "state.json").write_text(state.replace('"format_version": 3', '"format_version": 2'))
    (path / "manifest.json").unlink()
    manifest.write(path)
    if normalize_values:
        with pytest.raises(CheckpointError, match="expected format_version 3 with learner.vtrace.normalize_values"):
            make_run(tmp_path, resume=True)
    else:
        assert make_run(tmp_path, resume=True).machinery is not None


def test_a_checkpoint_of_a_later_version_is_an_error_with_its_path(tmp_path: Path) -> None:
    """Whole, but not to be read here: no earlier checkpoint takes its place without a word."""
    _, newest = two_checkpoints(tmp_path)
    state = (newest / "state.json").read_text()
    for content in (state.replace('"format_version": 3', '"format_version": 99'), "{}"):
        (newest / "manifest.json").unlink()
        (newest / "state.json").write_text(content)
        manifest.write(newest)
        with pytest.raises(CheckpointError, match=str(newest)) as raised:
            make_run(tmp_path, resume=True)
        assert not isinstance(raised.value, CheckpointDamaged)


def test_training_goes_on_while_a_checkpoint_is_summed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates wait for the files to be written, and not for what is done with them afterwards."""
    run = make_run(tmp_path)
    run.build(SPEC)
    assert run.machinery is not None
    between_updates = run.machinery.trainer.between_updates
    held: list[bool] = []
    write_state = checkpoints_module._state_to_json
    monkeypatch.setattr(
        checkpoints_module, "_state_to_json", lambda *args: held.append(between_updates.locked()) or write_state(*args)
    )
    write_manifest = manifest.write
    monkeypatch.setattr(manifest, "write", lambda path: held.append(between_updates.locked()) or write_manifest(path))
    run.save_checkpoint()
    assert held == [True, False]
