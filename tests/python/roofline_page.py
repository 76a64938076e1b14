"""Compares the page or picture of `optc bench -o` with the JSON of the same run.

    roofline_page.py RUN.json PAGE.html | PICTURE.svg
"""
import html.parser
import json
import math
import re
import sys
import xml.etree.ElementTree


class Page(html.parser.HTMLParser):
    """Collects marks and table rows, and checks that tags are closed in order."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.plot, self.marks, self.rows, self.texts = [], None, [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        assert tag not in ("script", "link", "img", "iframe"), "the page has <%s>" % tag
        for name, value in attrs.items():
            assert not name.startswith("on"), name
            assert "://" not in (value or "") or name == "xmlns", "%s=%s" % (name, value)
        if attrs.get("data-plot") == "roofline":
            self.plot = attrs
        elif "data-stage" in attrs or "data-mark" in attrs:
            self.marks.append(attrs)
        elif tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self.rows[-1].append("")
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        self.texts.append(data)
        if "td" in self.open:
            self.rows[-1][-1] += data


def drawn(rule, stage):
    return stage["bytes"] > 0 and stage[
        "flops"] > 0 and 0.02 * rule["profiled_ms"] <= stage["us"] * 1e-3 > 0


def peer(rule):
    return next(x for x in rule.values() if isinstance(x, dict) and "ratio" in x)


def check_mark(plot, mark, x, y, intensity, rate):
    left, top, width, height, x0, x1, y0, y1 = (
        float(plot["data-" + k]) for k in "left top width height x0 x1 y0 y1".split())
    at_x = left + width * math.log(intensity / x0) / math.log(x1 / x0)
    at_y = top + height * (1 - math.log(rate / y0) / math.log(y1 / y0))
    assert abs(x - at_x) < 0.02 and abs(y - at_y) < 0.02, (mark, at_x, at_y)
    assert left <= x <= left + width and top <= y <= top + height, mark


def check(run, path):
    text, page = open(path, encoding="utf-8").read(), Page()
    if path.endswith(".svg"):
        xml.etree.ElementTree.fromstring(text)
    page.feed(text)
    assert not page.open, page.open
    assert "prefers-color-scheme:dark" in text and page.plot is not None
    rules = {r["rule"]: r for r in run["rules"]}
    want = [(r, s["name"]) for r, rule in rules.items() for s in rule["stages"] if drawn(rule, s)]
    shown = [(m["data-rule"], m["data-stage"]) for m in page.marks if "data-stage" in m]
    assert shown == want and want, (shown, want)
    for mark in page.marks:
        rule = rules[mark["data-rule"]]
        if "data-stage" in mark:
            s = next(s for s in rule["stages"] if s["name"] == mark["data-stage"])
            check_mark(page.plot, mark, float(mark["cx"]), float(mark["cy"]),
                       s["flops"] / s["bytes"], s["flops"] / s["us"] * 1e-3)
            continue
        total = [sum(s[k] for s in rule["stages"]) for k in ("bytes", "flops")]
        ms = rule["ms"] if mark["data-mark"] == "step" else peer(rule)["ms"]
        check_mark(page.plot, mark, float(mark["data-x"]), float(mark["data-y"]),
                   total[1] / total[0], total[1] / ms * 1e-6)
    assert sum(m.get("data-mark") == "step" for m in page.marks) == len(rules)
    words = "".join(page.texts)
    assert "products in f32" in words and re.search(r"memory: [\d.]+ .B/s", words)
    if path.endswith(".svg"):
        return
    for r in rules.values():
        inside = sum(s["us"] for s in r["stages"]) * 1e-3
        assert inside <= (1 + 1e-5) * r["profiled_ms"], (r["rule"], inside, r["profiled_ms"])
        moved = sum(s["bytes"] for s in r["stages"])
        assert abs(moved - r["bytes_read"] - r["bytes_written"]) <= 1e-9 * moved, (r["rule"], moved)
        for s in r["stages"]:
            row = next(x for x in page.rows
                       if s["name"] in x and "%.1f %%" % (s["us"] * 0.1 / r["profiled_ms"]) in x)
            assert not s["flops"] or "%.4g" % (s["flops"] / s["us"] * 1e-3) in row, (s, row)
    assert "optc bench" in words


check(json.load(open(sys.argv[1])), sys.argv[2])
