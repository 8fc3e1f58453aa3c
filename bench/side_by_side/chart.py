"""Draws the result: ``chart.py RESULT.json`` writes RESULT.png, in the peers' environment, which has matplotlib."""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

UTTU, BARE, OTHER = "#1d6f8a", "#b9c0c4", "#d08c4a"


def colour(name: str) -> str:
    if name.startswith("Uttu"):
        return UTTU
    return BARE if name.startswith("bare") else OTHER


def label(each: dict) -> str:
    times = f"   {each['ratio']:.1f} × Scrapy" if each["ratio"] not in (None, 1.0) else ""
    return f"{each['pages_per_second']:,.0f}{times}"


file = Path(sys.argv[1])
result = json.loads(file.read_text())
medians, machine = result["medians"][::-1], result["machine"]

figure, axes = pyplot.subplots(figsize=(9, 0.9 + 0.42 * len(medians)), layout="constrained")
rates = [each["pages_per_second"] for each in medians]
bars = axes.barh(
    [each["name"] for each in medians], rates, color=[colour(each["name"]) for each in medians], height=0.68
)
axes.bar_label(bars, [label(each) for each in medians], padding=5, fontsize=9.5, color="#333333")
axes.set_xlim(0, max(rates) * 1.22)
axes.set_title(f"Pages a second: {result['pages']:,} pages of 6 KB and 32 links", loc="left", fontsize=12, pad=10)
versions = result["versions"]
axes.set_xlabel(
    f"{machine['cpu']}, {machine['cores']} cores shared with the web server; Python {machine['python']}, "
    f"Scrapy {versions['scrapy']}, crawlee {versions['crawlee']}; {result['date']}",
    fontsize=8.5,
    color="#555555",
    loc="left",
    labelpad=8,
)
axes.tick_params(left=False, labelsize=9.5, colors="#333333")
axes.xaxis.set_major_formatter("{x:,.0f}")
axes.xaxis.grid(True, color="#e6e6e6")
axes.set_axisbelow(True)
for side in ("top", "right", "left", "bottom"):
    axes.spines[side].set_visible(False)
figure.savefig(file.with_suffix(".png"), dpi=160, facecolor="white")
