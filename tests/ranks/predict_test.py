"""Predictions of several ranks: one file, bitwise the same as from one process, and none after a failure."""

import csv
import json
import pathlib
import struct

from ranks import RanksTest, main


class PredictTest(RanksTest):
    def predict(self, name, *arguments, ranks=1):
        """Predicts into a file below the test's folder; returns the bytes of all files with that stem, by their names."""
        path = pathlib.Path(self.out) / str(ranks) / name
        self.run_ranks(f"output={path}", *arguments, *([f"devices={ranks}"] if ranks > 1 else []), ranks=ranks)
        return {file.name: file.read_bytes() for file in sorted(path.parent.iterdir())}

    def assert_same_for_all_ranks(self, name, *arguments, files=None):
        """Predicts alone, and with 2 and 3 ranks; returns the one process's files."""
        one = self.predict(name, *arguments)
        self.assertEqual(sorted(one), files or [name], arguments)
        for ranks in (2, 3):
            several = self.predict(name, *arguments, ranks=ranks)
            self.assertEqual(sorted(several), sorted(one), arguments)
            for file, content in one.items():
                self.assertTrue(several[file] == content, f"{file} of {ranks} ranks differs: {arguments}")
        for ranks in (1, 2, 3):
            for file in one:
                (pathlib.Path(self.out) / str(ranks) / file).unlink()
        return one


class OneFile(PredictTest):
    def test_tables_and_lines_are_the_ones_of_one_process(self):
        table = self.assert_same_for_all_ranks("p.csv")["p.csv"].decode()
        rows = list(csv.DictReader(table.splitlines()))
        self.assertEqual([row["index"] for row in rows], [str(k) for k in range(30)])
        self.assertEqual([row["id"] for row in rows], [f"key {k}" + (",3" if k == 3 else "") for k in range(30)])
        self.assertEqual([row["batch"] for row in rows], [str(k // 4) for k in range(30)])
        lines = self.assert_same_for_all_ranks("p.jsonl")["p.jsonl"].decode().splitlines()
        objects = [json.loads(line) for line in lines]
        self.assertEqual([o["index"] for o in objects], list(range(30)))
        self.assertEqual([[float(row[f"prediction{k}"]) for k in range(3)] for row in rows], [o["prediction"] for o in objects])

    def test_uneven_numbers_of_samples_and_more_ranks_than_batches(self):
        for samples in (1, 3, 4, 5, 9, 25):
            with self.subTest(samples=samples):
                for name in ("p.csv", "p.jsonl"):
                    self.assertEqual(len(self.assert_same_for_all_ranks(name, f"samples={samples}")[name].splitlines()),
                                     samples + (name == "p.csv"))

    def test_batches_by_length_several_loaders_joined_loaders_and_workers(self):
        for arguments in (["lengths"], ["loaders=2"], ["loaders=2", "joined"], ["loaders=2", "joined", "samples=3"],
                          ["workers=3", "batch=1"]):
            with self.subTest(arguments=arguments):
                self.assert_same_for_all_ranks("p.csv", *arguments)
                self.assert_same_for_all_ranks("p.safetensors", "interval=epoch", *arguments)

    def test_tensors_hold_the_rows_their_indices_and_ids(self):
        content = self.assert_same_for_all_ranks("p.safetensors", "interval=epoch")["p.safetensors"]
        length, = struct.unpack("<Q", content[:8])
        header = json.loads(content[8:8 + length])
        self.assertEqual({name: entry["shape"] for name, entry in header.items() if name != "__metadata__"},
                         {"predictions": [30, 3], "sum": [30], "count": [30], "index": [30]})
        begin, end = header["index"]["data_offsets"]
        self.assertEqual(struct.unpack("<30q", content[8 + length + begin:8 + length + end]), tuple(range(30)))
        self.assertEqual(json.loads(header["__metadata__"]["id"])[2:5], ["key 2", "key 3,3", "key 4"])

    def test_a_file_for_each_batch_has_the_number_that_it_has_in_one_process(self):
        self.assert_same_for_all_ranks("p.safetensors", files=[f"p.loader0.batch{k}.safetensors" for k in range(8)])

    def test_a_loader_that_knows_no_ids_counts_its_samples(self):
        for ranks in (1, 2, 3):
            rows = list(csv.DictReader(self.predict("p.csv", "own_loader", ranks=ranks)["p.csv"].decode().splitlines()))
            self.assertEqual(sorted(int(row["index"]) for row in rows), list(range(30)))
            sums = {int(row["index"]): row["sum"] for row in rows}
            if ranks == 1:
                expected = sums
            self.assertEqual(sums, expected)


class SkippedSamples(PredictTest):
    def test_they_are_listed_in_order_with_their_reasons(self):
        for samples, broken in ((30, 7), (9, 2), (4, 1), (5, 5)):
            with self.subTest(samples=samples, broken=broken):
                files = self.assert_same_for_all_ranks("p.jsonl", f"samples={samples}", f"broken={broken}",
                                                       files=["p.jsonl", "p.skipped.csv"])
                skipped = list(csv.DictReader(files["p.skipped.csv"].decode().splitlines()))
                expected = [k for k in range(samples) if k % broken == broken - 1]
                self.assertEqual([int(row["index"]) for row in skipped], expected)
                self.assertEqual([row["reason"] for row in skipped], [f'row {k}, "damaged"' for k in expected])
                written = [json.loads(line)["index"] for line in files["p.jsonl"].splitlines()]
                self.assertEqual(written, [k for k in range(samples) if k not in expected])

    def test_batches_without_any_readable_sample_are_left_out(self):
        for batch in (1, 2):
            self.assert_same_for_all_ranks("p.csv", "broken=2", f"batch={batch}", files=["p.csv", "p.skipped.csv"])

    def test_the_list_of_an_earlier_prediction_is_removed(self):
        self.assertIn("p.skipped.csv", self.predict("p.csv", "broken=7"))
        self.assertNotIn("p.skipped.csv", self.predict("p.csv"))


class Failures(PredictTest):
    def files(self):
        return sorted(file.name for file in pathlib.Path(self.out).iterdir())

    def test_a_killed_rank_leaves_no_file_and_the_next_prediction_removes_what_is_left(self):
        for killed in ("0:2", "1:0", "1:3"):
            for name in ("p.csv", "p.safetensors"):
                with self.subTest(killed=killed, name=name):
                    path = f"output={self.out}/{name}"
                    status, errors = self.run_with(path, "devices=2", "interval=epoch", f"kill={killed}")
                    self.assertNotEqual(status, 0)
                    self.assertFalse([file for file in self.files() if not ".tmp-" in file], errors)
                    status, errors = self.run_with(path, "devices=2", "interval=epoch")
                    self.assertEqual(status, 0, errors)
                    self.assertEqual(self.files(), [name])
                    (pathlib.Path(self.out) / name).unlink()

    def test_a_failed_rank_keeps_the_file_of_an_earlier_prediction(self):
        path = f"output={self.out}/p.csv"
        self.assertEqual(self.run_with(path)[0], 0)
        before = (pathlib.Path(self.out) / "p.csv").read_bytes()
        status, errors = self.run_with(path, "devices=2", "fail=1:2")
        self.assertEqual(status, 1)
        self.assertIn("no prediction here", errors)
        self.assertEqual(self.files(), ["p.csv"])
        self.assertEqual((pathlib.Path(self.out) / "p.csv").read_bytes(), before)


if __name__ == "__main__":
    main()
