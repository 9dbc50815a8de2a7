#!/usr/bin/env python3
"""Draws the panels of the dashboard from what a Prometheus has, as one picture.

draw.py PORT SECONDS FILE: the last SECONDS of the Prometheus on this port, one point a second.
"""
import html, json, os, re, sys, time, urllib.parse, urllib.request

PORT, SECONDS, FILE = sys.argv[1], int(sys.argv[2]), sys.argv[3]
COLOURS = ["#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1", "#ba43a9", "#705da0"]
COLUMN, ROW = 50, 28
END = time.time()


def series(target):
    """Returns the legend and the points of each series of a target, points as Grafana asks for them."""
    expr = target["expr"].replace("$__rate_interval", "10s").replace("$limiter", ".*")
    query = urllib.parse.urlencode({"query": expr, "start": END - SECONDS, "end": END, "step": 1})
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/api/v1/query_range?{query}") as answer:
        found = json.load(answer)["data"]["result"]
    for one in found:
        label = lambda place: one["metric"].get(place[1], "")
        name = re.sub(r"{{(\w+)}}", label, target["legendFormat"])
        points = {round(at - END + SECONDS): float(value) for at, value in one["values"]}
        yield name, {at: value for at, value in points.items() if value == value and value < float("inf")}


def shown(value, unit):
    """Writes a value in the unit of its panel."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"
    return f"{value:.3g}" + ("/s" if unit == "ops" else "")


def lines(points):
    """Splits points where a second has none, since the panels span no gaps."""
    line = []
    for at in range(SECONDS + 1):
        if at in points:
            line.append((at, points[at]))
        elif line:
            yield line
            line = []
    if line:
        yield line


def panel(panel):
    place, unit = panel["gridPos"], panel["fieldConfig"]["defaults"]["unit"]
    x, y = place["x"] * COLUMN, place["y"] * ROW
    width, height = place["w"] * COLUMN - 10, place["h"] * ROW - 10
    stacked = "stacking" in panel["fieldConfig"]["defaults"]["custom"]
    everything = [one for target in panel["targets"] for one in series(target)]
    everything.sort(key=lambda one: -max(one[1].values(), default=0))
    # Eight series can be told apart.
    everything = everything[:8]
    if stacked:
        sums = {}
        for _, points in everything:
            for at in points:
                points[at] = sums[at] = sums.get(at, 0) + points[at]
        everything.reverse()
    highest = max((value for _, points in everything for value in points.values()), default=0) or 1
    inner, left = height - 62, 56
    across = lambda at: x + left + at / SECONDS * (width - left - 10)
    up = lambda value: y + 26 + inner - value / highest * inner
    yield f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="#fff" stroke="#ccd"/>'
    yield f'<text x="{x + 8}" y="{y + 16}" font-weight="bold">{html.escape(panel["title"])}</text>'
    for share in (0, 0.5, 1):
        level = up(highest * share)
        yield f'<path d="M{across(0):.0f} {level:.1f}H{across(SECONDS):.0f}" stroke="#dde" fill="none"/>'
        yield f'<text x="{x + left - 4}" y="{level + 4:.1f}" text-anchor="end">{shown(highest * share, unit)}</text>'
    words, beside = 0, x + left
    for (name, points), colour in zip(everything, COLOURS):
        for line in lines(points):
            way = "L".join(f"{across(at):.1f} {up(value):.1f}" for at, value in line)
            if stacked:
                ends = f"L{across(line[-1][0]):.1f} {up(0):.1f}L{across(line[0][0]):.1f} {up(0):.1f}Z"
                yield f'<path d="M{way}{ends}" fill="{colour}"/>'
            else:
                yield f'<path d="M{way}" stroke="{colour}" fill="none" stroke-width="1.5"/>'
        long = len(name) * 6.2 + 22
        if beside + long > x + width:
            words, beside = words + 1, x + left
        yield f'<rect x="{beside}" y="{y + height - 26 + words * 13}" width="9" height="9" fill="{colour}"/>'
        yield f'<text x="{beside + 12}" y="{y + height - 18 + words * 13}">{html.escape(name)}</text>'
        beside += long


dashboard = json.load(open(os.path.join(os.path.dirname(__file__), "dashboard.json")))
parts = []
for one in dashboard["panels"]:
    if one["type"] == "row":
        parts.append(f'<text x="2" y="{(one["gridPos"]["y"] + 0.7) * ROW:.0f}" font-size="15">{one["title"]}</text>')
    else:
        parts += panel(one)
height = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in dashboard["panels"]) * ROW
with open(FILE, "w") as file:
    file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1200 {height}" width="1200" '
               f'font-family="sans-serif" font-size="11" fill="#223">\n<rect width="1200" height="{height}" fill="#f6f7f9"/>\n')
    file.write("\n".join(parts) + "\n</svg>\n")
