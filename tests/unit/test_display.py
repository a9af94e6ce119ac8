"""The display of a run: what it says at each stage, at a terminal and elsewhere."""

from __future__ import annotations

import io
import math
import os
import pty

import pytest
from rich.console import Console

from seedrl_launcher.display import (
    LiveDisplay,
    PlainDisplay,
    Snapshot,
    duration,
    figures,
    make_display,
    progress_line,
)
from seedrl_proto.v1 import learner_pb2 as learner
from seedrl_proto.v1 import spec_pb2


def status(**changes) -> learner.StatusReply:
    """A learner in the middle of training."""
    values = {
        "state": "training",
        "env_steps": 50_000,
        "total_env_steps": 200_000,
        "policy_version": 78,
        "episodes": 9,
        "mean_return": 120.5,
        "bottleneck": "environments",
        "metrics": {"env_steps_per_s": 1500.0, "frames_per_s": 6000.0, "learner/idle_share": 0.25},
        "spec": spec_pb2.EnvironmentSpec(action_repeat=4),
    }
    return learner.StatusReply(**(values | changes))


def snapshot(**changes) -> Snapshot:
    """A run in which one of two actors is down."""
    return Snapshot(status=status(**changes), actors_alive=1, actors=2, restarts=3)


def test_everything_known_is_said_with_its_unit():
    """Speed in env steps and frames, return, policy, bottleneck and actors are all there."""
    said = dict(figures(snapshot()))
    assert said["speed"] == "1,500 env steps/s, 6,000 frames/s"
    assert said["mean return"] == "120.50 (last 100 episodes)"
    assert said["learner idle"] == "25%"
    assert said["bottleneck"] == "environments"
    assert said["actors"] == "1/2 alive, 3 restarts"


def test_a_human_normalized_score_is_said_where_there_is_one():
    """It stands beside the mean return, with what it is measured by."""
    said = dict(figures(snapshot(metrics={"episode/human_normalized_score": 0.5})))
    assert said["human-normalized"] == "0.50 (a person: 1)"
    assert "human-normalized" not in dict(figures(snapshot()))


def test_what_is_not_known_is_left_out():
    """No return before the first episode, no frames where there is no action repeat, no figures at the start."""
    said = dict(figures(snapshot(mean_return=math.nan, spec=spec_pb2.EnvironmentSpec(action_repeat=1))))
    assert "mean return" not in said
    assert said["speed"] == "1,500 env steps/s"
    assert dict(figures(Snapshot(None, 2, 2, 0))) == {"state": "starting", "actors": "2/2 alive"}


def test_time_left_follows_from_goal_and_speed():
    """150,000 steps at 1,500 a second are 1:40; without a goal there is none."""
    assert progress_line(status()) == "50,000 / 200,000 env steps  25%  1:40 left"
    assert progress_line(status(total_env_steps=0)) == "50,000 env steps"
    assert duration(3725) == "1:02:05"


def test_plain_display_prints_one_line_a_period():
    """Elsewhere than at a terminal there is one line every ten seconds, however often it is shown; events at once."""
    times = [0.0, 1.0, 9.9, 10.0]
    out = io.StringIO()
    with PlainDisplay("title", Console(file=out), clock=lambda: times[0]) as display:
        while len(times) > 1:
            display.show(snapshot())
            times.pop(0)
        display.show(snapshot())
        display.tell("actor-0 [died]")
    lines = out.getvalue().splitlines()
    assert lines[0] == "title"
    assert lines[-1] == "actor-0 [died]"
    assert len(lines) == 4
    assert "bottleneck environments" in lines[1]


def test_live_display_draws_bar_and_figures():
    """At a terminal the title, the progress and the figures are drawn, at every stage of a run."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with LiveDisplay("CartPole-v1", console) as display:
        display.show(Snapshot(None, 0, 2, 0))
        display.show(snapshot())
    for text in ("CartPole-v1", "25%", "1,500 env steps/s", "environments"):
        assert text in out.getvalue()


def test_the_live_display_fits_a_terminal_of_eighty_columns():
    """Nothing is cut off: the progress has a line of its own."""
    out = io.StringIO()
    with LiveDisplay("CartPole-v1", Console(file=out, force_terminal=True, width=80)) as display:
        display.show(snapshot(env_steps=2_500_000, total_env_steps=6_000_000))
    assert progress_line(status(env_steps=2_500_000, total_env_steps=6_000_000)) in out.getvalue()


@pytest.mark.parametrize(("opened", "kind"), [(os.pipe, PlainDisplay), (pty.openpty, LiveDisplay)])
def test_a_lost_pipe_or_terminal_ends_nothing(monkeypatch, opened, kind):
    """The run goes on: its numbers are in its directory."""
    ours, theirs = opened()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(theirs, "w", buffering=1) as stream:
        monkeypatch.setattr("sys.stderr", stream)
        with make_display("title") as display:
            assert isinstance(display, kind)
            os.close(ours)
            display.show(snapshot())
            display.tell("actor-1 ended")
