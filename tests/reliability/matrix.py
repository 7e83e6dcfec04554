#!/usr/bin/env python3
"""The matrix of faults: what a run does when something goes wrong, by fault, phase and strategy.

  matrix.py write     writes docs/reliability.md
  matrix.py check     compares the page with the matrix, and the matrix with the tests that it names; exit status 1 if
                      they differ

A part of the matrix is a file NAME_faults.json in this folder. Its tests read the cells from it (Part.cells) and assert
each outcome, so the page promises what is tested. A file holds:

  title, introduction   of its section of the page
  order                 its place among the parts
  phases, strategies    {name: the words that the page shows}, in their order; every fault is looked at in all of them
  faults                a list of

    name, title         a word for tests, and the words that the page shows
    description         what happens to the run, in a full sentence
    advice              what the user does about it
    group               the CTest reliability.GROUP runs its cells, if tests of this folder do
    cells               a list of
      phases, strategies   lists of names: each pair is a cell with this outcome
      status               the exit status, as a shell shows it (128 + N after signal N)
      outcome              one plain sentence
      test                 "FILE: CLASS.METHOD" (unittest) or "FILE: SUITE.NAME" (GoogleTest), if a test elsewhere asserts
                           the outcome; its lines name the fault in a comment "Reliability: NAME"
      nightly              names of phases and strategies whose cells the nightly tests alone assert
      …                    anything else that the part's own tests read (error, rank, …)
    absent              a list of
      phases, strategies   as above; an entry without both, the last, stands for all other pairs
      reason               why there is no such cell

Every pair of a phase and a strategy of a fault is a cell or absent, once; "check" reports what is missing.
"""
import dataclasses
import itertools
import json
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
PAGE = ROOT / "docs/reliability.md"
NOTE = "<!-- Written by tests/reliability/matrix.py from the cells that tests assert. Change the *_faults.json there instead. -->\n"


@dataclasses.dataclass(frozen=True)
class Cell:
    fault: str
    phase: str
    strategy: str
    expected: dict = dataclasses.field(compare=False)

    @property
    def is_nightly(self):
        return bool({self.phase, self.strategy} & set(self.expected.get("nightly", [])))

    @property
    def name(self):
        return f"{self.fault}_{self.phase}_{self.strategy}"


class Part:
    """One file of the matrix."""

    def __init__(self, path):
        self.path = Path(path)
        self.content = json.loads(self.path.read_text(encoding="utf-8"))
        self.phases, self.strategies = self.content["phases"], self.content["strategies"]

    def pairs(self, entry):
        """Returns the (phase, strategy) pairs that an entry of `cells` or `absent` stands for."""
        return list(itertools.product(entry.get("phases", self.phases), entry.get("strategies", self.strategies)))

    def cells(self):
        """Yields the cells that this part's own tests assert."""
        for fault in self.content["faults"]:
            for entry in fault["cells"]:
                if "test" not in entry:
                    for phase, strategy in self.pairs(entry):
                        yield Cell(fault["name"], phase, strategy, entry)

    def problems(self):
        """Yields what is wrong with the part, one sentence for each problem."""
        for fault in self.content["faults"]:
            where = f"{self.path.name}: {fault['name']}"
            seen = set()
            absent = fault.get("absent", [])
            if absent and is_rest(absent[-1]):
                seen.update(itertools.product(self.phases, self.strategies))
                absent = absent[:-1]
            named = set()
            for entry in fault["cells"] + absent:
                for phase, strategy in self.pairs(entry):
                    if phase not in self.phases or strategy not in self.strategies:
                        yield f"{where}: there is no phase {phase} or no strategy {strategy}."
                    if (phase, strategy) in named:
                        yield f"{where}: {phase} with {strategy} has two outcomes."
                    named.add((phase, strategy))
            seen |= named
            for phase, strategy in itertools.product(self.phases, self.strategies):
                if (phase, strategy) not in seen:
                    yield f"{where}: {phase} with {strategy} has neither an outcome nor a reason to be absent."
            runs_cells = any("test" not in entry for entry in fault["cells"])
            if "group" in fault and runs_cells and fault["group"] not in words_of(FOLDER / "tests.cmake"):
                yield f"{where}: tests.cmake has no group {fault['group']}."
            for entry in fault["cells"]:
                if not entry["outcome"].endswith("."):
                    yield f"{where}: the outcome \"{entry['outcome']}\" is not a sentence."
                if "test" in entry:
                    yield from self._problems_of_test(where, entry["test"], fault["name"])

    def _problems_of_test(self, where, test, fault):
        file, _, name = test.partition(": ")
        path = ROOT / file
        if not path.is_file():
            yield f"{where}: {file} does not exist."
            return
        body = body_of_test(path.read_text(encoding="utf-8"), name)
        if body is None:
            yield f"{where}: {file} has no test {name}."
        elif not re.search(rf"Reliability:.*\b{re.escape(fault)}\b", body):
            yield f"{where}: {name} in {file} needs a comment \"Reliability: {fault}\", so that its reader knows of the cell."


def words_of(path):
    return set(re.findall(r"\w+", path.read_text(encoding="utf-8")))


def is_rest(entry):
    """Returns whether an entry of `absent` stands for all pairs that are not named."""
    return "phases" not in entry and "strategies" not in entry


def body_of_test(text, name):
    """Returns the lines of a unittest's method or of a GoogleTest, with the comment above it; None if there is no such test."""
    group, _, test = name.partition(".")
    if match := re.search(rf"^class {group}\b.*?(?=^class |\Z)", text, re.MULTILINE | re.DOTALL):
        found = re.search(rf"(?:^ +#[^\n]*\n)*^ +def {test}\(.*?(?=^ +def |\Z)", match[0], re.MULTILINE | re.DOTALL)
        return found and found[0]
    found = re.search(rf"(?:^//[^\n]*\n)*^TEST(?:_F|_P)?\({group}, {test}\).*?^}}", text, re.MULTILINE | re.DOTALL)
    return found and found[0]


def parts():
    return sorted((Part(path) for path in FOLDER.glob("*_faults.json")), key=lambda part: part.content["order"])


# ---- the page ------------------------------------------------------------------------------------------------------

def listed(names, shown):
    """Returns the words that the page shows for some of the phases or strategies; "all" for all of them."""
    if set(names) == set(shown):
        return "all"
    missing = [shown[name] for name in shown if name not in names]
    if len(missing) < len(names) and len(names) > 4:
        return f"all but {', '.join(missing)}"
    return ", ".join(shown[name] for name in names)


def section(part, fault):
    lines = [f"### {fault['title']}", "", fault["description"], "",
             "| when | strategy | what happens | exit status |", "| --- | --- | --- | --- |"]
    for entry in fault["cells"]:
        lines.append(f"| {listed(entry.get('phases', part.phases), part.phases)} | "
                     f"{listed(entry.get('strategies', part.strategies), part.strategies)} | "
                     f"{entry['outcome'].replace('|', chr(92) + '|')} | {entry['status']} |")
    lines.append("")
    if "advice" in fault:
        lines += [fault["advice"], ""]
    for entry in fault.get("absent", []):
        lines += [f"Not tested{absent_text(part, entry)}: {entry['reason']}", ""]
    return lines


def absent_text(part, entry):
    if is_rest(entry):
        return " elsewhere"
    phases = listed(entry.get("phases", part.phases), part.phases)
    strategies = listed(entry.get("strategies", part.strategies), part.strategies)
    return (f" ({phases})" if phases != "all" else "") + (f" with {strategies}" if strategies != "all" else "")


def page():
    """Returns the text of docs/reliability.md."""
    introduction = (FOLDER / "introduction.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
    lines = [introduction[0], "", NOTE.rstrip("\n"), *introduction[1:], ""]
    for part in parts():
        lines += [f"## {part.content['title']}", "", part.content["introduction"], ""]
        for fault in part.content["faults"]:
            lines += section(part, fault)
    return "\n".join(lines).rstrip("\n") + "\n"


def main():
    if sys.argv[1:] == ["write"]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if sys.argv[1:] != ["check"]:
        sys.exit(__doc__)
    problems = [problem for part in parts() for problem in part.problems()]
    if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != page():
        problems.append(f"{PAGE.relative_to(ROOT)} is out of date. Run tests/reliability/matrix.py write.")
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
