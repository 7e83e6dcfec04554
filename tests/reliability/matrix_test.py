"""Plants each kind of mistake in a part of the matrix, and sees matrix.py name it."""
import copy
import json
import tempfile
import unittest
from pathlib import Path

from matrix import Part, page, parts, section

PART = {
    "title": "A part", "introduction": "What it is about.", "order": 1,
    "phases": {"start": "at the start", "end": "at the end"}, "strategies": {"single": "one process", "ddp": "ddp"},
    "faults": [{
        "name": "killed", "title": "It is killed", "description": "A process gets SIGKILL.",
        "cells": [{"phases": ["start", "end"], "strategies": ["single"], "status": 137, "outcome": "It ends."},
                  {"phases": ["end"], "strategies": ["ddp"], "status": [1, 137], "outcome": "All end.",
                   "test": "tests/reliability/matrix_test.py: Named.test_a_test_that_a_cell_names"}],
        "absent": [{"phases": ["start"], "strategies": ["ddp"], "reason": "There is nothing yet."}],
    }],
}


class PartTest(unittest.TestCase):
    def part(self, change=lambda fault: None):
        content = copy.deepcopy(PART)
        change(content["faults"][0])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "some_faults.json"
            path.write_text(json.dumps(content))
            return Part(path)

    def expect(self, change, *words):
        problems = "\n".join(self.part(change).problems())
        for each in words:
            self.assertIn(each, problems)


class Named(PartTest):
    # Reliability: killed.
    def test_a_test_that_a_cell_names(self):
        self.assertEqual(list(self.part().problems()), [])

    def test_without_the_comment_it_is_reported(self):
        self.expect(lambda fault: fault["cells"][1].update(test="tests/reliability/matrix_test.py: Named.test_that_is_missing"),
                    "matrix_test.py has no test Named.test_that_is_missing")
        self.expect(lambda fault: fault["cells"][1].update(
            test="tests/reliability/matrix_test.py: Mistakes.test_a_pair_without_an_outcome"),
            "needs a comment \"Reliability: killed\"")
        self.expect(lambda fault: fault["cells"][1].update(test="tests/no_file.py: A.b"), "tests/no_file.py does not exist")


class Mistakes(PartTest):
    def test_a_pair_without_an_outcome(self):
        self.expect(lambda fault: fault["absent"].clear(),
                    "killed: start with ddp has neither an outcome nor a reason to be absent")

    def test_a_pair_with_two_outcomes(self):
        self.expect(lambda fault: fault["absent"].append({"phases": ["end"], "strategies": ["ddp"], "reason": "No."}),
                    "killed: end with ddp has two outcomes")

    def test_a_phase_that_there_is_not(self):
        self.expect(lambda fault: fault["cells"][0].update(phases=["start", "end", "middle"]), "there is no phase middle")

    def test_an_outcome_that_is_not_a_sentence(self):
        self.expect(lambda fault: fault["cells"][0].update(outcome="ends"), 'the outcome "ends" is not a sentence')

    def test_a_group_that_no_ctest_runs(self):
        self.expect(lambda fault: fault.update(group="nobodys"), "tests.cmake has no group nobodys")


class Page(PartTest):
    def test_a_row_has_its_phases_strategy_outcome_and_status(self):
        part = self.part()
        lines = section(part, part.content["faults"][0])
        self.assertIn("| all | one process | It ends. | 137 |", lines)
        self.assertIn("| at the end | ddp | All end. | 1 or 137 |", lines)
        self.assertIn("Not tested (at the start) with ddp: There is nothing yet.", lines)

    def test_it_holds_every_fault(self):
        text = page()
        for part in parts():
            for fault in part.content["faults"]:
                self.assertIn(f"### {fault['title']}\n\n{fault['description']}\n", text)


if __name__ == "__main__":
    unittest.main()
