# SPDX-License-Identifier: MIT
"""What a run found, as a table, JSON, Markdown and a chart."""

import datetime
import json
import os
import platform
import shutil
import subprocess

from rows import RATES


LEVEL = 1.05  # closer than this is neither better nor worse


def figure(v):
    if v is None:
        return "-"
    if v == 0 or abs(v) >= 1000:
        return f"{v:,.0f}"
    return f"{v:.3g}" if abs(v) < 100 else f"{v:.0f}"


def _ratio(r):
    return "-" if r is None else f"{r:.2f}"


def verdict(result):
    """met, level with the best peer, behind (faster, but the target is missed) or loses, or ''."""
    ratio, target, limit = result["ratio"], result["target"], result["limit"]
    if limit is not None:
        return "met" if result["weft"] is not None and result["weft"] <= limit else "behind"
    if ratio is None:
        return ""
    rate = result["unit"] in RATES
    if target is not None and (ratio >= target if rate else ratio <= target):
        return "met"
    if 1 / LEVEL <= ratio <= LEVEL:
        return "level"
    return "loses" if (ratio < 1 if rate else ratio > 1) else "behind" if target is not None else "wins"


def _target(result):
    return f"<= {figure(result['limit'])}" if result["limit"] is not None else _ratio(result["target"])


def _cells(result, peers):
    spread = "-" if result["spread"] is None else f"{result['spread'] * 100:.0f} %"
    return ([result["workload"], result["variant"], result["unit"], figure(result["weft"])]
            + [figure(result["peers"].get(p)) for p in peers]
            + [result["best_peer"] or "-", _ratio(result["ratio"]), _ratio(result["ratio_of_best"]), _target(result), verdict(result),
               spread + (" noisy" if result["noisy"] else "")])


def _header(peers):
    return ["workload", "variant", "unit", "weft"] + peers + ["best peer", "ratio", "of best", "target", "", "spread"]


def columns(results):
    names = []
    for r in results:
        names += [p for p in r["peers"] if p not in names]
    return names


def table(results):
    peers = columns(results)
    lines = [_header(peers)] + [_cells(r, peers) for r in results]
    width = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(line, width))).rstrip()
        for line in lines)


def markdown(results, facts):
    peers = columns(results)
    lines = [f"Measured {facts['date']} on {facts['machine']}; {facts['command']}, {facts['rounds']} rounds, "
             f"load average {facts['load']} at the start.", ""]
    lines += [f"Versions: {', '.join(f'{k} {v}' for k, v in facts['versions'].items())}."]
    for name, why in facts["missing"].items():
        lines.append(f"Missing: {name}: {why}.")
    lines += ["", "| " + " | ".join(_header(peers)) + " |", "|" + "---|" * len(_header(peers))]
    lines += ["| " + " | ".join(_cells(r, peers)) + " |" for r in results]
    return "\n".join(lines) + "\n"


def put_into(path, results, facts_):
    """Replaces what lies between the two marker lines of a document."""
    begin, end = "<!-- table -->", "<!-- end of table -->"
    with open(path, encoding="utf-8") as f:
        text = f.read()
    head, rest = text.split(begin, 1)
    with open(path, "w", encoding="utf-8") as f:
        f.write(head + begin + "\n" + markdown(results, facts_) + end + rest.split(end, 1)[1])


def machine():
    model = "?"
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{len(os.sched_getaffinity(0))} CPUs ({model}), Linux {platform.release()}"


def facts(rounds, versions, missing, command):
    return {"date": datetime.date.today().isoformat(), "machine": machine(), "rounds": rounds,
            "load": f"{os.getloadavg()[0]:.1f}", "versions": versions, "missing": missing, "command": command}


CHART = """set terminal svg size 1000,{height} dynamic noenhanced font 'sans,12'
set output '{out}'
set title 'time relative to the best peer of the same run (shorter is better)'
set logscale x 2
set xrange [0.03:8]
set yrange [-1:{count}]
set grid xtics
set xtics (0.0625, 0.125, 0.25, 0.5, 1, 2, 4, 8)
set key off
set ytics ({ticks}) nomirror
set arrow from 1,graph 0 to 1,graph 1 nohead lw 2 lc rgb '#c04040'
set lmargin 34
plot '-' using 1:2:(0.03):1:($2-0.35):($2+0.35) with boxxyerror fs solid 0.7 noborder lc rgb '#4070b0'
{data}
e
"""


def chart(results, out):
    """Writes an SVG; returns why not, or None."""
    if not shutil.which("gnuplot"):
        return "gnuplot is not installed (Debian: gnuplot-nox)"
    shown = [r for r in results if r["ratio"]]
    shown.reverse()
    time = [1 / r["ratio"] if r["unit"] in RATES else r["ratio"] for r in shown]
    script = CHART.format(
        height=60 + 18 * len(shown), out=out, count=len(shown),
        ticks=", ".join(f"'{r['workload']} {r['variant']}' {i}" for i, r in enumerate(shown)),
        data="\n".join(f"{min(max(t, 0.031), 8)} {i}" for i, t in enumerate(time)))
    done = subprocess.run(["gnuplot"], input=script, text=True, capture_output=True, check=False)
    return done.stderr.strip() or None


def write(directory, results, facts_):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "results.json"), "w", encoding="utf-8") as f:
        json.dump(results, f, indent=1)
        f.write("\n")
    with open(os.path.join(directory, "results.md"), "w", encoding="utf-8") as f:
        f.write(markdown(results, facts_))
    return chart(results, os.path.join(directory, "results.svg"))
