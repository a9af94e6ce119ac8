"""Settings as people find them: by a word, or on the page that is made of the models."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedrl_core.config import Settings, load_settings, parse_assignments
from seedrl_launcher.settings_listing import all_settings, settings_page

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_settings_are_found_by_key_variable_or_meaning() -> None:
    """Each has a meaning, a default as TOML writes it, and what it takes."""
    assert all(one.description and one.about for one in all_settings())
    (one,) = all_settings("learner.compute_dtype")
    assert (one.shown_default, one.takes) == ('"auto"', "auto, float32, bfloat16")
    assert all_settings("SEEDRL_LEARNER__COMPUTE_DTYPE") == [one]
    assert "learner.vtrace.discount" in {one.key for one in all_settings("gamma")}


@pytest.mark.parametrize(
    ("key", "takes"),
    [
        ("learner.resume", "true, false"),
        ("learner.run_dir", "path"),
        ("learner.network.core", "none, lstm"),
        ("learner.network.mlp_sizes", "list of integer > 0"),
        ("learner.vtrace.trace_lambda", "number >= 0, <= 1"),
        ("actor.env_kwargs", "table"),
    ],
)
def test_what_a_setting_takes_is_told_in_words(key: str, takes: str) -> None:
    """Type, choices and bounds, also of settings that may be None."""
    (one,) = (one for one in all_settings(key) if one.key == key)
    assert one.takes == takes


def test_the_loader_takes_what_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All defaults given by their keys are the default settings; each variable is one that the loader knows."""
    listed = [one for one in all_settings() if one.default is not None]
    assert len(listed) > 80
    assignments = [f"{one.key}={one.shown_default}" for one in listed]
    assert load_settings(None, parse_assignments(assignments)) == Settings()
    for one in listed:
        monkeypatch.setenv(one.variable, one.shown_default.strip('"'))
    assert load_settings() == Settings()


def test_the_page_is_up_to_date() -> None:
    """`make settings` would change nothing."""
    assert PAGE.read_text() == settings_page(all_settings())
