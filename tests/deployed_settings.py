"""Where the files for deployment are, and the settings that they hand to services."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from seedrl_core.config import Settings, load_settings

DEPLOY = Path(__file__).parents[1] / "deploy"
SERVICES = ("actor", "broker", "learner")


def check_settings(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, object]) -> Settings:
    """Loads settings from environment variables as a service would; ConfigError when one is wrong."""
    with monkeypatch.context() as environment:
        for name, value in variables.items():
            environment.setenv(name, str(value))
        return load_settings()
