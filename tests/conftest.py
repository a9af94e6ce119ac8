"""What every test needs: TensorFlow set up as the learner does, and test modules that processes can import."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import settings

from seedrl_learner.compute import configure_tensorflow

configure_tensorflow()
# How long an example takes says nothing on a machine that does other things too.
settings.register_profile("seedrl", deadline=None)
settings.load_profile("seedrl")

_paths = (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _paths))
