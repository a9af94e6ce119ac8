"""What every test needs: TensorFlow set up as the learner does, before anything imports it."""

from __future__ import annotations

from seedrl_learner.compute import configure_tensorflow

configure_tensorflow()
