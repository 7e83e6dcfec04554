#!/usr/bin/env python3
"""Prints the result of a ctest run: each skipped test with the reason, then one line of counts. `./dev check` ends with it.

  test_summary.py RESULTS LOG STATUS NOTE      RESULTS: from ctest --output-junit; LOG: ctest's output; STATUS: its exit
                                               status; NOTE: text after the counts in the last line

The counts are those of suites and scripts. Cases that are skipped in a test that passes are listed too. A program gives
the reason in its last line with exit status 77, by GTEST_SKIP() << reason, or by skipTest(reason) under
unittest.main(verbosity=2). Exit status: ctest's, or 1 if that is 0 but a test failed or no results were written.
"""
import re
import signal
import sys
import xml.etree.ElementTree
from collections import namedtuple

# outcome: passed, failed or skipped; reasons: {why: names of the cases, none for the whole test}
Test = namedtuple("Test", "name outcome reasons")

GTEST_RUN = re.compile(r"^\[ RUN      \] (\S+)$", re.M)
GTEST_SKIP = re.compile(r"^(?:\S+:\d+: Skipped\n(?P<why>(?:(?!\[ RUN|\S+:\d+: Skipped$).*\n)*?))?"
                        r"\[  SKIPPED \] (?P<case>\S+) \(\d+ ms\)$", re.M)
# Printed after each suite of a CTest that runs several suites (run_suites.h), named program.suite+suite….
SUITE_END = re.compile(r"^\[ SUITE    \] (?P<suite>\S+) (?P<outcome>passed|failed|skipped) in [\d.]+ s\n", re.M)
UNITTEST_RUN = re.compile(r"^\w+ \([\w.]+\)(?:\n.*)? \.\.\. ", re.M)
UNITTEST_SKIP = re.compile(r"^(?P<case>\w+) \([\w.]+\)(?:\n.*)?? \.\.\. skipped (?P<quote>['\"])(?P<why>.*)(?P=quote)$", re.M)
UNITTEST_END = re.compile(r"^(?:OK|FAILED) \(.*\bskipped=(\d+)", re.M)
PROGRESS = re.compile(r"^ *\d+/(?P<all>\d+) Test +#\d+: (?P<name>.+?) \.* *(?P<end>Passed|\*\*\*\D*?) +[\d.]+ sec", re.M)
NO_REASON = "its output gives no reason"


def one_line(text):
    return " ".join(text.split())


def skipped_cases(output):
    """Returns ({reason: [case, …]}, whether all cases were skipped) from GoogleTest's or unittest's output."""
    reasons, cases = {}, 0
    for pattern in (GTEST_SKIP, UNITTEST_SKIP):
        for found in pattern.finditer(output):
            cases += 1
            name = found["case"].split(".")[-1]
            reasons.setdefault(one_line(found["why"] or "") or NO_REASON, []).append(name)
    end = UNITTEST_END.search(output)
    if not reasons and end:
        return {f"{NO_REASON}: unittest.main(verbosity=2) prints it": [""] * int(end[1])}, False
    run = len(GTEST_RUN.findall(output)) or len(UNITTEST_RUN.findall(output))
    return reasons, cases == run


def last_line(output):
    lines = output.strip().splitlines()
    return one_line(lines[-1]).removeprefix("skipped: ") if lines else NO_REASON


def read_case(case):
    name, output = case.get("name"), case.findtext("system-out") or ""
    left_out = case.find("skipped")
    if case.get("status") == "run" and case.find("failure") is None:
        reasons, all_of_them = skipped_cases(output)
        return Test(name, "skipped" if reasons and all_of_them else "passed", reasons)
    if case.get("status") == "disabled":
        return Test(name, "skipped", {"it is disabled in CMake (DISABLED)": []})
    # A test that could not be run has failed, unless it requests to be skipped itself.
    if left_out is None or not left_out.get("message", "").startswith("SKIP_"):
        return Test(name, "failed", skipped_cases(output)[0])
    return Test(name, "skipped", skipped_cases(output)[0] or {last_line(output): []})


def read_cases(case):
    """Returns the tests of an entry: each suite that it ran, or the entry itself. A suite that did not end has failed."""
    output = case.findtext("system-out") or ""
    program, _, suites = case.get("name").partition(".")
    tests, begin = [], 0
    for end in SUITE_END.finditer(output):
        tests.append(Test(f"{program}.{end['suite']}", end["outcome"], skipped_cases(output[begin:end.start()])[0]))
        begin = end.end()
    if not tests:
        return [read_case(case)]
    if case.get("status") == "fail" and not any(test.outcome == "failed" for test in tests):
        ended = {test.name for test in tests}
        names = [f"{program}.{suite}" for suite in suites.split("+")]
        tests += [Test(name, "failed", {}) for name in names if name not in ended]
    return tests


def read_results(path):
    """Returns the tests, or None if ctest has not written the complete file."""
    try:
        return [test for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase")
                for test in read_cases(case)]
    except (OSError, xml.etree.ElementTree.ParseError):
        return None


def read_log(text):
    """Returns (the tests that ended, the number of planned tests) from the output of a ctest that crashed."""
    outcomes = {"Passed": "passed", "***Skipped": "skipped"}
    tests, planned = {}, 0
    for line in PROGRESS.finditer(text):
        outcome = outcomes.get(line["end"], "failed")
        why = {"ctest ended before it wrote the reason": []} if outcome == "skipped" else {}
        tests[line["name"]] = Test(line["name"], outcome, why)
        planned = int(line["all"])
    return list(tests.values()), planned


def print_skipped(tests):
    lines = []
    for test in tests:
        for why, cases in test.reasons.items():
            part = ""
            if test.outcome != "skipped":
                part = f", {cases[0]} alone" if len(cases) == 1 and cases[0] else f", {len(cases)} of its cases"
            lines.append(f"  {test.name}{part}: {why}")
    if lines:
        print("Skipped, and why:", *lines, sep="\n")


def how_it_ended(status):
    if status > 128:
        try:
            return f"was killed by {signal.Signals(status - 128).name}"
        except ValueError:
            pass
    return f"ended with status {status}"


def main(results, log, status, note):
    tests, planned, crashed = read_results(results), 0, False
    if tests is None:
        with open(log, encoding="utf-8", errors="replace") as file:
            text = file.read()
        tests, planned = read_log(text)
        crashed = "No tests were found" not in text
    print_skipped(tests)
    if crashed:
        print(f"ctest {how_it_ended(status)} and wrote no results: what it printed before is counted ({log}).")
        for test in tests:
            if test.outcome == "failed":
                print(f"  {test.name}: failed")
    count = {outcome: sum(test.outcome == outcome for test in tests) for outcome in ("passed", "failed", "skipped")}
    cases = sum(len(names) for test in tests if test.outcome != "skipped" for names in test.reasons.values())
    line = ", ".join(f"{number} {outcome}" for outcome, number in count.items())
    if cases:
        line += f" (and {cases} case{'s' * (cases > 1)} of tests that ran)"
    if planned > len(tests):
        line += f", {planned - len(tests)} not run"
    print(f"check: {line}; {note}")
    return status or int(crashed or count["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
