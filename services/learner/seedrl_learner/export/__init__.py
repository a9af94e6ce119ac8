"""Policies for use outside of a learner."""

from enum import StrEnum


class Format(StrEnum):
    """What a policy may be written as."""

    SAVEDMODEL = "savedmodel"
    ONNX = "onnx"
