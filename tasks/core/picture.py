"""A chart that is drawn when somebody looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Picture:
    """What a chart shows, in a sentence, and a function that draws it as an Altair chart."""

    caption: str
    draw: Callable[[], Any] = field(repr=False)
