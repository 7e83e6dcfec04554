"""Plants each kind of mistake in a part of the matrix, and sees matrix.py name it."""
import copy
import json
import tempfile
import unittest
from pathlib import Path

from matrix import Part, page, parts, section

# What the matrix must hold: kinds of faults, and the names that faults have in its parts.
KINDS = {
    "rank killed, frozen, slow": "killed killed_restarted crashed launcher_killed frozen frozen_alone frozen_last slow suspended",
    "link down and up": "link_down link_back",
    "store's host gone": "node_lost node_frozen",
    "port taken": "port_taken",
    "garbage at rendezvous": "garbage stranger",
    "disk full, read-only, removed": "disk_full disk_read_only folder_removed",
    "two runs in one folder": "second_run",
    "clock moved": "clock_forward clock_back dates_wrong",
    "limits on descriptors, threads, memory": "descriptors threads memory",
    "stdout closed": "output_closed closed_streams",
    "no HOME, no TERM, odd locale": "no_home no_term odd_locale",
    "each signal": "sigterm sigint sighup sigusr1 sigquit",
    "NaN and Inf in loss, gradient, weights, metrics": "nonfinite_loss nonfinite_gradient nonfinite_input nonfinite_metric "
        "nan_loss inf_loss nan_gradient nan_input inf_input nan_weights inf_weights nan_metric inf_metric",
    "exceptions": "exception exception_of_data second_exception exception_of_release destructor runtime_error levin_error "
        "libtorch_error bad_alloc number mistake",
    "empty, ragged and endless data": "empty_loader empty_stream empty_batch endless short_loader long_loader false_size "
        "changed_size negative_size negative_batches odd_batch ragged_samples undefined_sample",
    "10,000 metric names": "many_names odd_names",
    "checkpoints of a newer version, another model, world, precision": "newer_checkpoint other_model other_world other_precision",
    "allocation failures inside a step": "no_memory memory",
}

PART = {
    "title": "A part", "introduction": "What it is about.", "order": 1,
    "phases": {"start": "at the start", "end": "at the end"}, "strategies": {"single": "one process", "ddp": "ddp"},
    "faults": [{
        "name": "killed", "title": "It is killed", "description": "A process gets SIGKILL.",
        "cells": [{"phases": ["start", "end"], "strategies": ["single"], "status": 137, "outcome": "It ends."},
                  {"phases": ["end"], "strategies": ["ddp"], "status": 1, "outcome": "All end.",
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


class Whole(unittest.TestCase):
    """The matrix itself."""

    def faults(self):
        return {fault["name"]: (part, fault) for part in parts() for fault in part.content["faults"]}

    def test_each_kind_of_fault_has_cells(self):
        names = [name for line in KINDS.values() for name in line.split()]
        self.assertCountEqual(set(names) | {"suspended_long"}, self.faults())
        for name, (part, fault) in self.faults().items():
            with self.subTest(name):
                self.assertTrue([pair for entry in fault["cells"] for pair in part.pairs(entry)])

    def test_each_cell_has_one_exit_status(self):
        for name, (_, fault) in self.faults().items():
            for entry in fault["cells"]:
                self.assertIsInstance(entry["status"], int, name)

    def test_each_signal_is_sent_in_each_phase(self):
        for name in KINDS["each signal"].split():
            part, fault = self.faults()[name]
            sent = {pair for entry in fault["cells"] for pair in part.pairs(entry)}
            for phase in part.phases:
                self.assertIn((phase, "single"), sent, name)
                if phase != "write":  # by rank 0 alone
                    self.assertIn((phase, "ddp"), sent, name)


class Page(PartTest):
    def test_a_row_has_its_phases_strategy_outcome_and_status(self):
        part = self.part()
        lines = section(part, part.content["faults"][0])
        self.assertIn("| all | one process | It ends. | 137 |", lines)
        self.assertIn("| at the end | ddp | All end. | 1 |", lines)
        self.assertIn("Not tested (at the start) with ddp: There is nothing yet.", lines)

    def test_it_holds_every_fault(self):
        text = page()
        for part in parts():
            for fault in part.content["faults"]:
                self.assertIn(f"### {fault['title']}\n\n{fault['description']}\n", text)


if __name__ == "__main__":
    unittest.main()
