"""One self-contained HTML file: nothing is loaded from anywhere, also not by what it shows.

Texts of candidates and of people are data: templates escape them, scripts put them in as text,
and a content policy that names the hashes of the page's own scripts lets no other one run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from math import log10
from typing import TYPE_CHECKING, Any

from ..views import Chapter, DecisionView, Headline
from .chart import Chart, Marker, Series
from .contents import conditions_table, evaluations_table, tables_of
from .extras import load
from .figures import figures_of
from .interactive import chart_data, packed_plotly
from .svg import draw, marker_path
from .tabular import Column, Table, shown
from .wording import interval, moment, percent, value

if TYPE_CHECKING:
    from markupsafe import Markup

    from .edition import Edition

__all__ = ["page"]

PACKED_FROM = 300
"""Rows from which a table is data that a script shows a page of."""
MOST_DECISIONS = 100
"""Decision records that stand in full in the page, the latest first."""
MOST_ROWS = 20_000
"""Of a table in the page, the latest; CSV has all."""
GOOD = frozenset({"ok", "pass", "PASSED", "faster", "promoted", "promote", "agrees"})
POOR = frozenset(
    {"NOT MET", "fail", "reject", "crash", "timeout", "wrong", "slower", "differs", "refused"}
)


@dataclass(frozen=True)
class _ShownTable:
    """A table as the template takes it."""

    id: str
    title: str
    caption: str
    empty: str
    columns: Sequence[Mapping[str, Any]]
    rows: Sequence[Sequence[Markup]]
    count: int
    packed: Markup | None = None


@dataclass(frozen=True)
class _ShownChapter:
    """A chapter as the template takes it."""

    id: str
    short: str
    chapter: Chapter
    tables: Mapping[str, _ShownTable]
    figures: Mapping[str, Mapping[str, Any]]
    decisions: Sequence[tuple[DecisionView, _ShownTable]]
    more_decisions: int
    sections: Sequence[tuple[str, str]]
    big: Mapping[str, Any] = field(default_factory=dict)


def page(edition: Edition, *, interactive: bool = True) -> str:
    """The whole file.

    Args:
        edition: What is reported.
        interactive: Whether plotly is packed into it, where it is installed.

    Raises:
        UnavailableError: If jinja2 is not installed.
    """
    jinja2 = load("jinja2", "the page")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kopt_controller.reports"), autoescape=True, trim_blocks=True
    )
    environment.filters["moment"] = moment
    plotly = packed_plotly() if interactive else None
    script = _resource("app.js")
    hashes = [_hash(script), *([] if plotly is None else [plotly.sha256])]
    text: str = environment.get_template("page.html.j2").render(
        title=edition.title,
        version=edition.version,
        generated=moment(edition.generated),
        chapters=[_chapter(n, each) for n, each in enumerate(edition.chapters, 1)],
        foreign=_foreign(edition.foreign),
        style=_safe(_resource("style.css")),
        script=_safe(script),
        plotly=None if plotly is None else _safe(plotly.base64),
        policy="default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
        f"script-src {' '.join(hashes)}; base-uri 'none'; form-action 'none'",
    )
    return text


def _safe(html: str) -> Markup:
    """Markup that is inserted as it is: made here, with every foreign text in it escaped."""
    from markupsafe import Markup  # noqa: PLC0415  an extra of the installation

    return Markup(html)


def _resource(name: str) -> str:
    return (resources.files("kopt_controller.reports") / "templates" / name).read_text("utf-8")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _chapter(number: int, chapter: Chapter) -> _ShownChapter:
    name = f"c{number}"
    tables = {**tables_of(chapter), "evaluations": evaluations_table(chapter)}
    tables = {key: _latest(table) for key, table in tables.items()}
    latest = chapter.decisions[::-1]
    return _ShownChapter(
        id=name,
        short=f"{chapter.subject.alias} on {chapter.hardware.name}",
        chapter=chapter,
        tables={key: _table(table) for key, table in tables.items()},
        figures={chart.id: _figure(name, chart) for chart in figures_of(chapter)},
        decisions=[(each, _table(conditions_table(each))) for each in latest[:MOST_DECISIONS]],
        more_decisions=max(0, len(latest) - MOST_DECISIONS),
        sections=_sections(chapter),
        big={} if chapter.headline is None else _big(chapter, chapter.headline),
    )


def _latest(table: Table) -> Table:
    """So that a page stays one that a browser opens, however many runs there are."""
    if len(table.rows) <= MOST_ROWS:
        return table
    told = f"{table.caption} The latest {MOST_ROWS:,} of {len(table.rows):,}; CSV has them all."
    return table._replace(rows=table.rows[-MOST_ROWS:], caption=told)


def _sections(chapter: Chapter) -> list[tuple[str, str]]:
    found = []
    if chapter.headline is not None:
        found += [("speed", "How fast"), ("workloads", "Workloads")]
    if chapter.rounds:
        found.append(("search", "The search"))
    found += [("decisions", "Decisions"), ("setup", "Setup")]
    if chapter.evaluations.rows:
        found.append(("all", "Evaluations"))
    return [*found, ("again", "Reproduce")]


def _foreign(tables: Sequence[Table]) -> dict[str, Any] | None:
    if not tables:
        return None
    return {"id": "foreign", "tables": {table.id: _table(table) for table in tables}}


def _table(table: Table) -> _ShownTable:
    columns = [
        {"name": c.name, "unit": c.unit, "help": c.help, "numeric": c.is_numeric}
        for c in table.columns
    ]
    is_packed = len(table.rows) >= PACKED_FROM
    rows = [] if is_packed else [_cells(table.columns, row) for row in table.rows]
    return _ShownTable(
        id=table.id,
        title=table.title,
        caption=table.caption,
        empty=table.empty,
        columns=columns,
        rows=rows,
        count=len(table.rows),
        packed=_safe(_script_json(_packed(table))) if is_packed else None,
    )


def _cells(columns: Sequence[Column], row: Sequence[Any]) -> list[Markup]:
    return [
        _safe(f'<td class="{_class(column, text)}">{escape(text)}</td>')
        for column, text in ((c, shown(c, cell)) for c, cell in zip(columns, row, strict=True))
    ]


def _class(column: Column, text: str) -> str:
    if column.is_numeric:
        return "n"
    if column.form == "code":
        return "m"
    if column.form != "state":
        return ""
    return "good" if text in GOOD else "poor" if text in POOR else ""


def _packed(table: Table) -> dict[str, Any]:
    """Column by column, each value once where most of them repeat."""
    columns: list[dict[str, Any] | list[str]] = []
    for number, column in enumerate(table.columns):
        texts = [shown(column, row[number]) for row in table.rows]
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        if len(places) * 2 < len(texts):
            columns.append({"d": list(places), "i": [places[text] for text in texts]})
        else:
            columns.append(texts)
    classes = [{"code": "m", "state": "state"}.get(column.form, "") for column in table.columns]
    states = {"good": sorted(GOOD), "poor": sorted(POOR)}
    return {"rows": len(table.rows), "columns": columns, "classes": classes, "states": states}


def _script_json(document: Any) -> str:
    """JSON that no script element can end before its time."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _figure(prefix: str, chart: Chart) -> dict[str, Any]:
    return {
        "title": chart.title,
        "caption": chart.caption,
        "svg": _safe(draw(chart, f"{prefix}-")),
        "legend": [{"name": s.name, "icon": _safe(_icon(s))} for s in chart.series],
        "data": _safe(_script_json(chart_data(chart))),
    }


def _icon(series: Series) -> str:
    parts = ['<svg viewBox="0 0 22 14" focusable="false">']
    if series.line != "none":
        line = "solid" if series.line == "step" else series.line
        parts.append(f'<path class="line {line} {series.role}" d="M1 7H21"/>')
    if series.marker == "bar":
        parts.append(f'<rect class="bar {series.role}" x="5" y="2" width="12" height="11" rx="2"/>')
    elif series.marker != "none":
        marker: Marker = series.marker
        path = marker_path(marker, 11, 7)
        parts.append(f'<path class="points {marker} {series.role}" d="{path}"/>')
    return "".join([*parts, "</svg>"])


def _big(chapter: Chapter, headline: Headline) -> dict[str, Any]:
    """The headline's number, and what stands beside it."""
    by_role = {row.role: row for row in reversed(chapter.efficiency)}
    candidate = by_role.get("candidate")
    keys = [
        ("Mean of the candidate", f"{value(headline.candidate_mean_us, 4)} us"),
        ("Mean of the incumbent", f"{value(headline.incumbent_mean_us, 4)} us"),
    ]
    if candidate is not None and candidate.x_floor is not None:
        keys.append(("Distance to the floor", f"{value(candidate.x_floor)}\u00d7"))
    keys += [
        (f"{row.name} / candidate", interval(row.speedup, row.ci))
        for row in chapter.efficiency
        if row.role == "baseline" and row.speedup is not None
    ]
    keys += [("Measured", moment(headline.date)), ("Epoch", headline.epoch)]
    ratio = headline.ratio
    return {
        "number": _number(headline),
        "unit": "as fast" if headline.is_decided else "",
        "ratio": interval(ratio, headline.ci),
        "confidence": percent(headline.confidence),
        "facts": keys,
        "strip": _safe(_strip(headline)),
    }


def _number(headline: Headline) -> str:
    """What is read first: no factor where the interval does not tell the two apart."""
    if not headline.ratio:
        return "-"
    return f"{value(1 / headline.ratio)}\u00d7" if headline.is_decided else "undecided"


def _strip(headline: Headline) -> str:
    """The interval beside 1, where the two would be equally fast."""
    if not headline.ratio or headline.ci is None or headline.ci[0] <= 0:
        return ""
    low, high = min(headline.ci[0] * 0.85, 0.5), max(headline.ci[1] * 1.15, 1.25)

    def at(ratio: float) -> str:
        return f"{8 + 404 * (log10(ratio) - log10(low)) / (log10(high) - log10(low)):.1f}"

    start, end, here, same = (at(x) for x in (*headline.ci, headline.ratio, 1.0))
    width = max(float(end) - float(start), 2.0)
    text = interval(headline.ratio, headline.ci)
    return (
        '<svg class="chart strip" viewBox="0 -14 420 60" role="img" '
        f'aria-label="Interval of the ratio: {text}; at 1 both are equally fast">'
        f'<path class="grid" d="M8 18H412"/><rect class="band" x="{start}" y="9" '
        f'width="{width:.1f}" height="18" rx="3"/><path class="mark" d="M{same} 4V32"/>'
        f'<circle class="dot" cx="{here}" cy="18" r="4.5"/>'
        f'<text class="note" x="{same}" y="-2" text-anchor="middle">1: equally fast</text>'
        f'<text class="note" x="{here}" y="43" text-anchor="middle">{value(headline.ratio)}</text>'
        "</svg>"
    )
