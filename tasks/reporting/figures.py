"""Charts of a summary as inline SVG (HTML report) or as a PNG in a data URI (artifact)."""

from __future__ import annotations

import base64
import logging
import re
from dataclasses import dataclass
from xml.etree import ElementTree

from gradatim.schemas.errors import UsageError
from gradatim.schemas.summary import SummaryChart
from gradatim.tasks.core import charts
from gradatim.tasks.core import format as fmt

LARGEST_SVG = 300_000
"""Characters beyond which a drawing of many points becomes a picture of them."""
ELEMENTS = {"svg", "g", "path", "rect", "line", "circle", "text", "tspan", "defs", "clipPath", "linearGradient", "stop"}
DROPPED = ("aria", "role", "class", "on", "href", "pointer-events", "style")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Figure:
    """A chart ready to be set: `svg` or `uri` is empty, both where it could not be drawn (`error` says why)."""

    title: str
    caption: str
    svg: str = ""
    uri: str = ""
    error: str = ""

    @property
    def alt(self) -> str:
        """What a reader who does not see the picture is told."""
        return ": ".join(filter(None, (self.title, self.caption)))


def drawing(chart: SummaryChart, prefix: str) -> Figure:
    """Draw a chart for the report; ids inside it start with `prefix`, so that drawings on one page do not mix."""
    title, caption = fmt.line(chart.title, 300), fmt.line(chart.caption, 2000)
    try:
        svg = charts.to_svg(chart.spec)
        if len(svg) > LARGEST_SVG:
            return Figure(title, caption, uri=data_uri(charts.svg_to_png(svg, scale=2)))
        return Figure(title, caption, svg=tidy(svg, prefix))
    except UsageError as error:  # a chart of a plug-in must not cost its user the report
        log.warning("chart %r could not be drawn: %s", title, error)
        return Figure(title, caption, error=fmt.line(error.what, 300))


def picture(chart: SummaryChart) -> Figure:
    """Draw a chart for an artifact, as a PNG."""
    title, caption = fmt.line(chart.title, 300), fmt.line(chart.caption, 2000)
    try:
        return Figure(title, caption, uri=data_uri(charts.to_png(chart.spec, scale=1.25)))
    except UsageError as error:  # as above
        log.warning("chart %r could not be drawn: %s", title, error)
        return Figure(title, caption, error=fmt.line(error.what, 300))


def data_uri(png: bytes) -> str:
    """Return a PNG as the address of itself."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def tidy(svg: str, prefix: str) -> str:
    """Return SVG for use inside HTML: known shapes only, no links, no scripts, no namespaces, ids of its own."""
    root = ElementTree.fromstring(svg)
    _tidy(root, prefix)
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)


def _tidy(element: ElementTree.Element, prefix: str) -> None:
    element.tag = _local(element.tag)
    for name, value in list(element.attrib.items()):
        del element.attrib[name]
        if not _local(name).startswith(DROPPED):
            value = re.sub(r"url\(#([^)]*)\)", rf"url(#{prefix}-\1)", value)
            if "url(" not in value.replace(f"url(#{prefix}-", ""):
                element.set(_local(name), f"{prefix}-{value}" if name == "id" else value)
    for child in list(element):
        if isinstance(child.tag, str) and _local(child.tag) in ELEMENTS:
            _tidy(child, prefix)
        else:
            element.remove(child)


def _local(name: str) -> str:
    return name.rpartition("}")[2]
