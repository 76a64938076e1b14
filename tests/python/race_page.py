"""Checks what `optc race` wrote: race_page.py JSON HTML compares the page with the numbers, and the
verdicts with a count of all permutations. race_page.py same A.json B.json compares two races
without their times. race_page.py curves JSON LINES compares the lines of --curves with the medians
of the race. race_page.py catalogue HTML LINES NAME… compares the curves on the page of `optc list
--html` with these lines; it has one figure for each name."""
import html.parser
import itertools
import json
import math
import sys
import xml.etree.ElementTree

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(html.parser.HTMLParser):
    """Collects plots with their curves, and checks that tags are closed in order."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.plots, self.texts, self.tables = [], [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        assert tag not in ("script", "link", "img", "iframe"), "the page has <%s>" % tag
        for name, value in attrs.items():
            assert not name.startswith("on") and "://" not in (value or ""), "%s=%s" % (name, value)
        if tag == "svg":
            self.plots.append((attrs, []))
        elif tag in ("polyline", "circle") and self.plots:
            self.plots[-1][1].append(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.tables.append([])

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag.replace("clippath", "clippath"), (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        self.texts.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1].append(data)


def median(v):
    v = sorted(v)
    n = len(v)
    return v[n // 2] if n % 2 or math.isinf(v[n // 2]) else (v[n // 2 - 1] + v[n // 2]) / 2


def curve_of(result, name, points):
    """The losses that a curve must show."""
    runs = [r for r in result["runs"] if r["done"]]
    if name != "median":
        return next(r["loss"] for r in runs if r["seed"] == int(name))
    out = []
    for k in range(points):
        v = median([r["loss"][k] if k < len(r["loss"]) else math.inf for r in runs])
        if math.isinf(v):
            break
        out.append(v)
    return out


def check_curves(report, page):
    tasks = {t["name"]: t for t in report["tasks"]}
    results = {(r["task"], r["rule"]): r for r in report["results"]}
    seen = set()
    for plot, curves in page.plots:
        if plot["data-plot"] == "sweep":
            continue
        task = tasks[plot["data-subject"]]
        x0, x1, y0, y1, left, top, width, height = (
            float(plot["data-" + k]) for k in "x0 x1 y0 y1 left top width height".split())
        points = -(-task["steps"] // task["every"]) + 1
        for c in curves:
            want = curve_of(results[task["name"], c["data-rule"]], c["data-curve"], points)
            shown = [tuple(map(float, p.split(","))) for p in c["points"].split()]
            assert len(shown) == len(want), (plot, c["data-rule"], len(shown), len(want))
            for k, (x, y) in enumerate(shown):
                step = min(k * task["every"], task["steps"])
                at = 1 - (math.log(max(want[k], 1e-30)) - math.log(y0)) / (math.log(y1) -
                                                                           math.log(y0))
                assert abs(x - (left + width * (step - x0) /
                                (x1 - x0))) < 0.006, "step of point %d" % k
                assert abs(y - (top + height * min(max(at, -5), 6))) < 0.006, "loss of point %d" % k
            seen.add((plot["data-plot"], task["name"], c["data-rule"], c["data-curve"]))
    for (task, rule), r in results.items():
        for run in r["runs"]:
            if run["done"] and run["loss"]:
                assert ("curves", task, rule, str(run["seed"])) in seen, (task, rule, run["seed"])
    return len(seen)


def order(run, by):
    if by == "gradients to target":
        if run["reached"] and run["reached"] <= run["budget"]:
            return 0, run["reached"] * run["gradients"]
        return 1, run["loss"][run["point"]] if run["point"] < len(run["loss"]) else math.inf
    loss = math.inf if run["diverged"] else run["loss"][-1]
    return (1, loss) if by == "final loss" or not run["reached"] else (0, run[by])


def permutation_p(a, b):
    """Two-sided p of the rank sum, by all choices of len(a) runs."""
    both = sorted(a + b)
    ranks = {v: (both.index(v) + 1 + both.index(v) + both.count(v)) / 2 for v in both}
    all_ranks = [ranks[v] for v in a + b]
    mean = sum(all_ranks) * len(a) / len(all_ranks)
    off = abs(sum(ranks[v] for v in a) - mean)
    sums = [abs(sum(c) - mean) >= off - 1e-9 for c in itertools.combinations(all_ranks, len(a))]
    return sum(sums) / len(sums)


def check_verdicts(report):
    for r, times in zip(report["results"], report["machine"]["times"]):
        for run, time in zip(r["runs"], times):
            run.update({"steps to target": run["reached"], "time to target": time["target"]})
    metrics = ["steps to target", "final loss", "time to target"]
    if any(r["gradients"] != 1 for r in report["rules"]):
        metrics.append("gradients to target")
    rules, tasks = ({x["name"]: x for x in report[k]} for k in ("rules", "tasks"))
    for r in report["results"]:
        each, task = rules[r["rule"]]["gradients"], tasks[r["task"]]
        budget = int(task["steps"] / each)
        last = -(-task["steps"] // task["every"])
        for run in r["runs"]:
            run.update(gradients=each, budget=budget,
                       point=last if each == 1 else budget // task["every"])
    for by in metrics:
        check_metric(report, by, report["machine" if by[0] == "t" else "verdicts"])


def check_metric(report, by, verdicts):
    verdicts = verdicts["verdicts"] if isinstance(verdicts, dict) else verdicts
    results = {(r["task"], r["rule"]): [order(x, by) for x in r["runs"] if x["done"]]
               for r in report["results"]}
    for task in report["tasks"]:
        pairs = [v for v in verdicts if v["task"] == task["name"] and v["by"] == by]
        rules = len(report["rules"])
        assert len(pairs) == rules * (rules - 1) // 2
        last = 0
        for i, v in enumerate(pairs):
            a, b = results[task["name"], v["a"]], results[task["name"], v["b"]]
            p = permutation_p(a, b) if a and b else 1
            assert abs(p - v["p"]) < 1e-9, (v, p)
            last = max(last, min(1, v["p"] * (len(pairs) - i)))
            assert abs(v["adjusted"] - last) < 1e-12 and v["beats"] == (last < 0.05), v


def check_page(path, page_path):
    report = json.load(open(path))
    page = Page()
    page.feed(open(page_path).read())
    assert not page.open, page.open
    curves = check_curves(report, page)
    check_verdicts(report)
    text = "".join(page.texts)
    assert report["machine"]["command"] in text
    for rule in report["rules"]:
        assert rule["text"].strip() in text, "the spec of %s is missing" % rule["name"]
    for seed in report["seeds"] + report["tuning_seeds"]:
        assert str(seed) in text
    assert not set(report["seeds"]) & set(report["tuning_seeds"])
    rows = {tuple(row) for row in page.tables}
    for r in report["results"]:
        loss = r["summary"]["median_loss"]
        shown = "–" if loss is None else "%.4g" % loss
        assert any(r["rule"] in row and shown in row for row in rows), (r["task"], r["rule"], shown)
        assert len(r["trials"]) <= report["most_trials"]
    for v in report["verdicts"] + report["machine"]["verdicts"]:
        shown = ("%s wins" %
                 v["a"] if v["beats"] else "not separable") + " (p = %.2g)" % v["adjusted"]
        assert v["by"] == "steps to target" or any(shown in row for row in rows), (shown, v)
    print("%d curves, %d verdicts" % (curves, len(report["verdicts"])))


def check_picture(path, picture):
    """An SVG file has the curves of the page, its own style and no other file."""
    text, page = open(picture).read(), Page()
    root = xml.etree.ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and "prefers-color-scheme:dark" in text
    page.feed(text.replace('xmlns="http://www.w3.org/2000/svg"', "", 1))
    assert not page.open, page.open
    page.plots = page.plots[1:]                        # the picture around the plots
    report = json.load(open(path))
    check_curves(report, page)
    assert len(page.plots) == len(report["tasks"])
    assert all(r["name"] in page.texts for r in report["rules"])


def same(a, b):
    a, b = json.load(open(a)), json.load(open(b))
    del a["machine"], b["machine"]
    assert a == b, "two races with the same seeds differ"


def read_lines(path):
    return [json.loads(line) for line in open(path)]


def check_lines(report, lines):
    report, lines = json.load(open(report)), read_lines(lines)
    assert [(x["task"], x["rule"]) for x in lines
            ] == [(t["name"], r["name"]) for t in report["tasks"] for r in report["rules"]]
    for x in lines:
        task = next(t for t in report["tasks"] if t["name"] == x["task"])
        result = next(
            r for r in report["results"] if (r["task"], r["rule"]) == (x["task"], x["rule"]))
        points = -(-task["steps"] // task["every"]) + 1
        want = curve_of(result, "median", points)[::x["every"] // task["every"]]
        assert len(want) == len(x["loss"]) <= 40, (x["rule"], len(want), len(x["loss"]))
        assert all(abs(a - b) <= 0.006 * abs(a) for a, b in zip(want, x["loss"])), (x, want)


def check_catalogue(path, lines, *names):
    page, lines = Page(), read_lines(lines)
    page.feed(open(path).read())
    assert not page.open, page.open
    text = "".join(page.texts)
    assert all(name in page.texts for name in names)
    shown = {
        a["aria-label"].split()[-1]: [
            tuple(map(float, p.split(","))) for p in c[0]["points"].split()
        ] for a, c in page.plots
    }
    assert set(shown) == {x["rule"] for x in lines} & set(names) and shown
    low = min(min(x["loss"] + [x["target"]]) for x in lines)
    high = max(x["loss"][0] for x in lines)
    for x in lines:
        assert x["command"] in text
        points = shown[x["rule"]]
        assert len(points) == len(x["loss"])
        for (_, y), loss in zip(points, x["loss"]):
            share = min(max(math.log(loss / low) / math.log(high / low), 0), 1)
            assert abs(y - (2 + 60 * (1 - share))) <= 0.06, (x["rule"], y, loss)
    assert text.count("no curve") == len(names) - len(shown)


if sys.argv[1] == "same":
    same(*sys.argv[2:])
elif sys.argv[1] == "picture":
    check_picture(*sys.argv[2:])
elif sys.argv[1] == "curves":
    check_lines(*sys.argv[2:])
elif sys.argv[1] == "catalogue":
    check_catalogue(*sys.argv[2:])
else:
    check_page(*sys.argv[1:])
