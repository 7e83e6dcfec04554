"""coverage.py BUILD [FOLDER], in the root of the tree, with a Python that has gcovr: prints which part of the lines the
tests have run in BUILD.

For the whole library without cuda/, or for one folder. Exit status: 1 below 92 %. BUILD/report shows the lines.
"""
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

WANTED_PERCENT = 92
NOT_THE_LIBRARY = ("cuda", "tests", "bench", "examples", "build", "docs")


def gcovr(build, folder):
    """Returns the files that gcovr reports on, with their counts of lines."""
    summary, pages = build / "coverage.json", build / "report"
    pages.mkdir(exist_ok=True)
    chosen = ["--filter", f"{folder}/"] if folder else [word for name in NOT_THE_LIBRARY for word in ("--exclude", f"{name}/")]
    # Templates and constructors have several functions in one line.
    status = subprocess.run([sys.executable, "-m", "gcovr", "--root", ".", *chosen, "--merge-mode-functions", "separate", "-j",
                             os.environ.get("LEVIN_JOBS") or str(len(os.sched_getaffinity(0))), "--json-summary", summary,
                             "--html-nested", pages / "index.html", build], stderr=subprocess.PIPE, text=True)
    if status.returncode != 0:
        sys.exit(f"coverage: gcovr failed (exit {status.returncode}):\n{status.stderr[-3000:]}")
    return json.loads(summary.read_text())["files"]


def main():
    build, folder = Path(sys.argv[1]), "".join(sys.argv[2:])
    lines, covered = Counter(), Counter()
    for file in gcovr(build, folder):
        # Of a chosen folder each file, otherwise each folder. Headers are found through BUILD/include, which leads back here.
        path = os.path.relpath(os.path.realpath(file["filename"]))
        name = path if folder else path.split("/")[0]
        lines[name] += file["line_total"]
        covered[name] += file["line_covered"]
    if not lines.total():
        sys.exit(f"coverage: no line of {folder or 'the library'} was compiled for coverage in {build}")
    print(f"\n{'':40}    lines covered")
    for name in sorted(lines):
        percent = 100 * covered[name] / max(1, lines[name])
        print(f"{name:40} {lines[name]:8} {percent:5.1f} %" + ("  below" if percent < WANTED_PERCENT else ""))
    percent = 100 * covered.total() / lines.total()
    print(f"\ncoverage: {percent:.1f} % of the {lines.total()} lines of {folder or 'the library outside cuda'} "
          f"(at least {WANTED_PERCENT} % wanted); {build}/report/index.html shows them")
    return int(percent < WANTED_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
