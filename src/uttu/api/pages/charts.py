"""Charts as SVG, drawn by the server: sparklines, lines and stacked areas over time, bars, and a time line.

A chart is a ``<figure>``. Its SVG is stretched to the width of the page; the labels of its axes are HTML around it, so
that text stays sharp at any width and the script can show times in the viewer's zone. Colours come from classes
(``s1`` … ``s6``, or ``ok``, ``warn``, ``bad``), because the content security policy allows no inline style. The script
reads ``data-times`` and ``data-values`` to show the values under the pointer. All figures are well-formed XML.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from markupsafe import Markup, escape

from uttu.api.pages.formatting import NOTHING, format_number

WIDTH: Final = 600
HEIGHT: Final = 150
_TICKS: Final = 4
_HOURS: Final = 5
# Larger values are drawn as this one, so that sums of a stack stay finite.
_LARGEST: Final = 1e300


class Series(msgspec.Struct, frozen=True):
    """A line of a chart. ``values`` has one value for each time; None leaves a gap. ``style`` is a class."""

    name: str
    style: str
    values: Sequence[float | None]


class TimeChart(msgspec.Struct, frozen=True, kw_only=True):
    """Lines, or stacked areas, over the time from ``start`` to ``end`` (Unix times)."""

    key: str
    """A name that is unique in the page, for ids."""
    title: str
    description: str
    """What the chart says, for people who can't see it."""
    times: Sequence[float]
    series: Sequence[Series]
    start: float
    end: float
    empty: str
    """What to show if there are no values."""
    stacked: bool = False
    format: Callable[[float | None], str] = format_number


def draw_sparkline(values: Sequence[float], label: str) -> Markup:
    """A small line without axes. ``label`` says what it shows."""
    width, height = 120, 28
    shown = [value if math.isfinite(value) else 0.0 for value in values]
    top = max(shown, default=0.0)
    parts = [Markup("<title>{}</title>").format(label)]
    if len(shown) > 1 and top > 0:
        step = width / (len(shown) - 1)
        points = [(at * step, height - 2 - value / top * (height - 4)) for at, value in enumerate(shown)]
        line = _join(points)
        parts.append(Markup('<path class="area" d="{}"/>').format(f"M0,{height}L{line}L{width},{height}Z"))
        parts.append(Markup('<path class="line" d="M{}"/>').format(line))
    else:
        parts.append(Markup('<path class="flat" d="M0,{0}L{1},{0}"/>').format(height - 2, width))
    return _svg("spark", width, height, parts)


def draw_bar(share: float | None, style: str, label: str) -> Markup:
    """A horizontal bar that is filled to a share of 1."""
    filled = min(1.0, max(0.0, share)) if share is not None and math.isfinite(share) else 0.0
    return _svg(
        "bar",
        100,
        6,
        [
            Markup("<title>{}</title>").format(label),
            Markup('<rect class="rest" width="100" height="6" rx="3"/>'),
            Markup('<rect class="{}" width="{}" height="6" rx="3"/>').format(style, _trim(filled * 100)),
        ],
    )


def draw_chart(chart: TimeChart) -> Markup:
    """A chart with axes and a legend that shows the last values."""
    columns = [_clean(series.values) for series in chart.series]
    legend = Markup("").join(
        _legend(chart, series, column) for series, column in zip(chart.series, columns, strict=True)
    )
    head = Markup('<figcaption><span class="chart-title">{}</span><ul class="legend">{}</ul></figcaption>').format(
        chart.title, legend
    )
    if not chart.times or all(value is None for column in columns for value in column):
        return Markup('<figure class="chart" id="{}">{}<p class="chart-empty">{}</p></figure>').format(
            f"chart-{chart.key}", head, chart.empty
        )
    layers = _stack(columns) if chart.stacked else columns
    step = _choose_step(max((value for layer in layers for value in layer if value is not None), default=0.0))
    top = step * _TICKS
    times = " ".join(f"{at:.0f}" for at in chart.times)
    body = Markup('<div class="plot"><ol class="ticks">{}</ol>{}</div><ol class="hours">{}</ol>').format(
        Markup("").join(Markup("<li>{}</li>").format(chart.format(step * tick)) for tick in range(_TICKS, -1, -1)),
        _plot(chart, layers, top),
        _hours(chart.start, chart.end),
    )
    return Markup('<figure class="chart" id="{}" data-times="{}" data-start="{}" data-end="{}">{}{}</figure>').format(
        f"chart-{chart.key}", times, f"{chart.start:.0f}", f"{chart.end:.0f}", head, body
    )


def _legend(chart: TimeChart, series: Series, column: list[float | None]) -> Markup:
    last = next((value for value in reversed(column) if value is not None), None)
    values = "|".join(chart.format(value) for value in column)
    return Markup('<li class="{}" data-values="{}"><i></i>{} <b>{}</b></li>').format(
        series.style, values, series.name, NOTHING if last is None else chart.format(last)
    )


def _plot(chart: TimeChart, layers: list[list[float | None]], top: float) -> Markup:
    span = max(chart.end - chart.start, 1e-9)
    across = [min(1.0, max(0.0, (at - chart.start) / span)) * WIDTH for at in chart.times]
    title, description = f"chart-{chart.key}-title", f"chart-{chart.key}-text"
    parts = [
        Markup('<title id="{}">{}</title><desc id="{}">{}</desc>').format(
            title, chart.title, description, chart.description
        )
    ]
    parts += [
        Markup('<path class="grid" d="M0,{0}H{1}"/>').format(_trim(HEIGHT * tick / _TICKS), WIDTH)
        for tick in range(_TICKS + 1)
    ]
    below: list[float | None] = [0.0] * len(chart.times)
    for series, layer in zip(chart.series, layers, strict=True):
        for run in _runs(layer):
            points = [(across[at], _height(layer[at], top)) for at in run]
            if chart.stacked:
                floor = [(across[at], _height(below[at], top)) for at in reversed(run)]
                parts.append(_path(f"{series.style} area", f"M{_join([*points, *floor])}Z"))
            else:
                parts.append(_path(f"{series.style} line", _draw_run(points)))
        if chart.stacked:
            below = [value if value is not None else floor for value, floor in zip(layer, below, strict=True)]
    parts.append(Markup('<path class="cursor" d=""/>'))
    return Markup(
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-labelledby="{} {}">{}</svg>'
    ).format(WIDTH, HEIGHT, title, description, Markup("").join(parts))


def _draw_run(points: list[tuple[float, float]]) -> str:
    """A line through the points. A single point is drawn as a short line, or it would not be seen."""
    if len(points) == 1:
        x, y = points[0]
        return f"M{_trim(max(0.0, x - 2))},{_trim(y)}H{_trim(min(WIDTH, x + 2))}"
    return f"M{_join(points)}"


def _hours(start: float, end: float) -> Markup:
    """Labels of the time axis at even distances."""
    span = end - start
    style = "second" if span < 300 else "time" if span <= 2 * 86_400 else "day"
    labels = []
    for at in range(_HOURS):
        moment = datetime.fromtimestamp(start + span * at / (_HOURS - 1), UTC)
        text = (
            f"{moment:%H:%M:%S}" if style == "second" else f"{moment:%H:%M}" if style == "time" else f"{moment:%d %b}"
        )
        labels.append(
            Markup('<li><time datetime="{}" data-style="{}">{}</time></li>').format(
                moment.isoformat(timespec="seconds"), style, text
            )
        )
    return Markup("").join(labels)


class TimelineRow(msgspec.Struct, frozen=True):
    """A row of a time line: its name, and the times that are marked."""

    name: str
    times: Sequence[float]
    style: str = "s1"


def draw_timeline(rows: Sequence[TimelineRow], start: float, end: float, label: str) -> Markup:
    """Marks on one line for each row, from ``start`` to ``end``."""
    span = max(end - start, 1e-9)
    lines = []
    for row in rows:
        marks = []
        for at in row.times:
            if start <= at <= end:
                x = _trim(WIDTH * (at - start) / span)
                moment = datetime.fromtimestamp(at, UTC)
                title = f"{row.name}: {moment:%Y-%m-%d %H:%M} UTC"
                marks.append(
                    Markup('<path class="{} mark" d="M{},4V20"><title>{}</title></path>').format(row.style, x, title)
                )
        plot = _svg("track", WIDTH, 24, [Markup('<path class="grid" d="M0,12H{}"/>').format(WIDTH), *marks])
        lines.append(Markup('<li><span class="row-name" title="{0}">{0}</span>{1}</li>').format(row.name, plot))
    return Markup(
        '<figure class="timeline"><figcaption class="hidden">{}</figcaption><ol class="rows">{}</ol>'
        '<ol class="hours">{}</ol></figure>'
    ).format(label, Markup("").join(lines), _hours(start, end))


def _svg(style: str, width: int, height: int, parts: Sequence[Markup]) -> Markup:
    return Markup('<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img">{}</svg>').format(
        style, width, height, Markup("").join(parts)
    )


def _path(style: str, drawn: str) -> Markup:
    return Markup('<path class="{}" d="{}"/>').format(style, escape(drawn))


def _clean(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None or not math.isfinite(value) else min(_LARGEST, max(0.0, value)) for value in values]


def _stack(columns: list[list[float | None]]) -> list[list[float | None]]:
    """Each column plus all before it; None where all columns have a gap."""
    layers: list[list[float | None]] = [[] for _ in columns]
    for values in zip(*columns, strict=True):
        is_gap = all(value is None for value in values)
        total = 0.0
        for layer, value in zip(layers, values, strict=True):
            total += value or 0.0
            layer.append(None if is_gap else total)
    return layers


def _runs(layer: list[float | None]) -> list[list[int]]:
    """The indexes of values without a gap between them."""
    runs: list[list[int]] = [[]]
    for at, value in enumerate(layer):
        if value is not None:
            runs[-1].append(at)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _choose_step(top: float) -> float:
    """The smallest round number of which ``_TICKS`` reach ``top``."""
    # Smaller values than this are drawn as zero.
    if top < 1e-9:
        return 1 / _TICKS
    wanted = top / _TICKS
    size = 10.0 ** math.floor(math.log10(wanted))
    return next((size * factor for factor in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if size * factor >= wanted), size * 10)


def _height(value: float | None, top: float) -> float:
    return HEIGHT - min(1.0, (value or 0.0) / top) * (HEIGHT - 2) - 1


def _join(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{_trim(x)},{_trim(y)}" for x, y in points)


def _trim(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
