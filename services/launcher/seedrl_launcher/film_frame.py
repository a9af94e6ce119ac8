"""One frame of a film: the environment's picture, beside it what the agent expects and what it prefers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from seedrl_core.recording import RecordedStep
from seedrl_core.spec import Array

_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

# Sizes in pixels; videos want multiples of 16.
HEIGHT = 432
PANEL_WIDTH = 304
_MARGIN = 14
_LINE = 20
_CURVE = (112, 212)  # top and bottom of the curve of values
_BARS_TOP = 244
_WIDEST_PICTURE = 1280
_CURVE_STEPS = 200
_NUMBERS_WIDTH, _NAMES_WIDTH = 28, 124  # before the bars

_BACKGROUND, _TEXT, _FAINT = (24, 26, 32), (225, 228, 235), (110, 116, 130)
_LINE_COLOUR, _CHOSEN, _OTHER = (110, 180, 255), (255, 170, 70), (75, 95, 130)


class FrameDrawer:
    """Draws the steps of a film in their order."""

    def __init__(self, title: str) -> None:
        """`title`: stands above every frame."""
        self._title = title
        self._font = ImageFont.load_default(14)
        self._episode = 0
        self._step = 0
        self._return = 0.0
        self._values: list[float] = []

    def draw(self, step: RecordedStep) -> Image.Image:
        """The frame of the next step; all frames of a film with pictures of one size have one size."""
        self._follow(step)
        picture = _scaled(step.picture)
        frame = Image.new("RGB", (picture.width + PANEL_WIDTH, HEIGHT), _BACKGROUND)
        frame.paste(picture, (0, 0))
        panel = Image.new("RGB", (PANEL_WIDTH, HEIGHT), _BACKGROUND)
        draw = ImageDraw.Draw(panel)
        self._draw_words(draw, step)
        self._draw_curve(draw)
        if step.preference:
            _draw_bars(draw, self._font, step)
        else:
            _draw_numbers(draw, self._font, step.action)
        frame.paste(panel, (picture.width, 0))
        return frame

    def _follow(self, step: RecordedStep) -> None:
        if step.first:
            self._episode += 1
            self._step, self._return, self._values = 0, 0.0, []
        else:
            self._step += 1
            self._return += step.reward
        self._values.append(step.value)

    def _draw_words(self, draw: ImageDraw.ImageDraw, step: RecordedStep) -> None:
        lines = (
            f"episode {self._episode}, step {self._step:,}",
            f"return {self._return:,.6g}",
            f"expects {step.value:,.3f}",
        )
        draw.text((_MARGIN, _MARGIN), self._title, _FAINT, self._font)
        for number, line in enumerate(lines, 1):
            draw.text((_MARGIN, _MARGIN + number * _LINE), line, _TEXT, self._font)

    def _draw_curve(self, draw: ImageDraw.ImageDraw) -> None:
        """The values of the last steps of the episode."""
        top, bottom = _CURVE
        right = PANEL_WIDTH - _MARGIN
        draw.line((_MARGIN, bottom, right, bottom), _FAINT)
        values = np.array(self._values[-_CURVE_STEPS:])
        if len(values) < 2:
            return
        low, high = float(values.min()), float(values.max())
        heights = (values - low) / max(high - low, 1e-6)
        across = np.linspace(right - (right - _MARGIN) * (len(values) - 1) / (_CURVE_STEPS - 1), right, len(values))
        down = bottom - 2 - heights * (bottom - top - 2)
        draw.line([(float(x), float(y)) for x, y in zip(across, down, strict=True)], _LINE_COLOUR, 2)
        draw.text((_MARGIN, top - 2), f"{high:.3g}", _FAINT, self._font)
        draw.text((_MARGIN, bottom + 2), f"{low:.3g}", _FAINT, self._font)


def _shares(preference: Sequence[float]) -> Sequence[float]:
    """Lengths 0..1 of bars: probabilities as they are, action values from the least to the greatest one."""
    numbers = np.array(preference)
    if numbers.min() >= 0 and abs(numbers.sum() - 1.0) < 1e-3:
        return [float(share) for share in numbers]
    spread = max(float(np.ptp(numbers)), 1e-6)
    return [float(share) for share in (numbers - numbers.min()) / spread]


def _draw_bars(draw: ImageDraw.ImageDraw, font: _Font, step: RecordedStep) -> None:
    """One a preference, named as the environment does, or else numbered; the greatest one stands out."""
    shares, chosen = _shares(step.preference), int(np.argmax(step.preference))
    is_named = len(step.action_names) == len(shares)
    names = step.action_names if is_named else [str(number) for number in range(len(shares))]
    room = HEIGHT - _BARS_TOP - _MARGIN
    pitch = min(_LINE, room // len(shares)) or 1
    left, right = _MARGIN + (_NAMES_WIDTH if is_named else _NUMBERS_WIDTH), PANEL_WIDTH - _MARGIN
    for number, (share, name) in enumerate(zip(shares[:room], names, strict=False)):
        top = _BARS_TOP + number * pitch
        colour = _CHOSEN if number == chosen else _OTHER
        if pitch >= _LINE // 2 + 4:
            draw.text((_MARGIN, top - 2), name, _TEXT if number == chosen else _FAINT, font)
        # Over what may be left of a long name.
        draw.rectangle((left, top - 2, PANEL_WIDTH, top + pitch - 3), _BACKGROUND)
        draw.rectangle((left, top, left + max(1.0, share * (right - left)), top + max(0, pitch - 4)), colour)


def _draw_numbers(draw: ImageDraw.ImageDraw, font: _Font, action: Sequence[float]) -> None:
    """The action itself, where there are no preferences."""
    fits = (HEIGHT - _BARS_TOP - _MARGIN) // _LINE
    for number, value in enumerate(action[:fits]):
        draw.text((_MARGIN, _BARS_TOP + number * _LINE), f"action {number}: {value:+.3f}", _TEXT, font)


def _scaled(picture: Array) -> Image.Image:
    """As high as the frame; sharp where few pixels become many."""
    image = Image.fromarray(np.ascontiguousarray(picture))
    width = min(_WIDEST_PICTURE, max(16, round(image.width * HEIGHT / image.height / 16) * 16))
    enlarges = 2 * image.height <= HEIGHT
    return image.resize((width, HEIGHT), Image.Resampling.NEAREST if enlarges else Image.Resampling.LANCZOS)
