"""Compares the columns that Levin reads from Parquet, Arrow and CSV files with pyarrow, pandas and Python's csv, on files
of every type and encoding that these write, and damages files.

    columns_peers.py COLUMNS_PROGRAM          # exit status 77: pyarrow is missing
"""
import csv
import datetime
import decimal
import io
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

home = os.environ.get("LEVIN_HOME") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "levin")
sys.path.insert(0, str(pathlib.Path(home, "arrow-python")))
try:
    import numpy
    import pandas
    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet
except ImportError as error:
    print(f"pyarrow is missing ({error}): ./dev check --peers installs it.")
    sys.exit(77)

PROGRAM = ""


def run(*arguments, status=0):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == status, f"status {done.returncode}: {done.stdout[-500:]} {done.stderr[-2000:]}"
    return done.stdout


def table_of_all_types(rows, seed):
    """A table with a column of each type, with nulls, and the sort of values that distinguish readers."""
    draw = random.Random(seed)
    day, unit = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12, 30, 1, 5000)
    words = ["", "a", "Köln", "a,b", 'say "so"', "two\nlines", "1", "x" * 300, "\u2028", "🐟"]
    ints = lambda bits, low: [draw.randrange(low, 2 ** bits) for _ in range(rows)]
    def nulls(values, fraction=0.2):
        return [None if draw.random() < fraction else value for value in values]
    arrow = pyarrow.array
    columns = {f"int{bits}": arrow(nulls(ints(bits - 1, -2 ** (bits - 1))), getattr(pyarrow, f"int{bits}")()) for bits in (8, 16, 32, 64)}
    columns |= {f"uint{bits}": arrow(ints(bits, 0), getattr(pyarrow, f"uint{bits}")()) for bits in (8, 16, 32, 64)}
    floats = [draw.choice([0.1, -1.5, 1e300, -0.0, math.nan, 5e-324, draw.gauss(0, 1)]) for _ in range(rows)]
    columns |= {
        "float64": arrow(nulls(floats)), "float32": arrow(nulls([draw.gauss(0, 9) for _ in range(rows)]), pyarrow.float32()),
        "float16": arrow([numpy.float16(draw.gauss(0, 9)) for _ in range(rows)], pyarrow.float16()),
        "bool": arrow(nulls([draw.random() < 0.5 for _ in range(rows)])),
        "string": arrow(nulls([draw.choice(words) for _ in range(rows)])),
        "large_string": arrow(nulls([draw.choice(words) for _ in range(rows)]), pyarrow.large_string()),
        "string_view": arrow(nulls([draw.choice(words) for _ in range(rows)]), pyarrow.string_view()),
        "distinct": arrow([f"row {row}" for row in range(rows)]),
        "dictionary": arrow(nulls([draw.choice(words) for _ in range(rows)])).dictionary_encode(),
        "ordered": arrow(pandas.Categorical([draw.choice("abc") for _ in range(rows)], ["c", "a", "b", "never"], ordered=True)),
        "int_dictionary": arrow(nulls([draw.randrange(5) for _ in range(rows)])).dictionary_encode(),
        "date32": arrow(nulls([day] * rows), pyarrow.date32()), "date64": arrow([day] * rows, pyarrow.date64()),
        "time": arrow([unit.time()] * rows, pyarrow.time64("us")), "timestamp": arrow(nulls([unit] * rows), pyarrow.timestamp("ms")),
        "decimal": arrow(nulls([decimal.Decimal(draw.randrange(-9999, 9999)) / 100 for _ in range(rows)]), pyarrow.decimal128(9, 2)),
        "decimal256": arrow([decimal.Decimal("-12345.678")] * rows, pyarrow.decimal256(50, 3)),
        "null": pyarrow.nulls(rows), "list": arrow([[1, 2]] * rows), "struct": arrow([{"a": 1, "b": "x"}] * rows),
        "binary": arrow([b"\x00\xff"] * rows),
    }
    return pyarrow.table(columns)


UNSUPPORTED = {"list", "struct", "binary"}


def numbers_in(column):
    """What pyarrow reads, as doubles and None."""
    kind = column.type
    if pyarrow.types.is_date32(kind) or pyarrow.types.is_time32(kind):
        column = column.cast(pyarrow.int32())
    elif pyarrow.types.is_temporal(kind):
        column = column.cast(pyarrow.int64())
    values = [None if value is None else float(value) for value in column.to_pylist()]
    return [None if value is None or math.isnan(value) else value for value in values]


def texts_in(column):
    return [None if value is None else str(value).lower() if isinstance(value, bool) else str(value) for value in column.to_pylist()]


class Columns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def compare(self, read, path, table):
        self.assertEqual(list(read["columns"]), sorted(table.column_names))
        self.assertEqual(sum(read["groups"]), table.num_rows)
        for name in table.column_names:
            column, found = table.column(name).combine_chunks(), read["columns"][name]
            with self.subTest(path=path.name, column=name):
                if name in UNSUPPORTED:
                    self.assertNotIn("values", found)
                elif found["is_category"]:
                    self.assertEqual(found["values"], texts_in(column))
                else:
                    self.assertEqual(found["values"], numbers_in(column))
        return read

    def test_every_type_and_encoding_is_what_pyarrow_reads(self):
        table = table_of_all_types(1000, 1)
        ways = {"plain": {"use_dictionary": False, "compression": "none"}, "snappy": {"row_group_size": 333},
                "zstd": {"compression": "zstd", "data_page_version": "2.0", "row_group_size": 100},
                "gzip": {"compression": "gzip", "data_page_size": 64}, "brotli": {"compression": "brotli"},
                "lz4": {"compression": "lz4", "version": "1.0"}, "no_schema": {"store_schema": False},
                "bytes": {"use_dictionary": False, "column_encoding": {"float64": "BYTE_STREAM_SPLIT", "int64": "DELTA_BINARY_PACKED",
                                                                      "string": "DELTA_BYTE_ARRAY", "distinct": "DELTA_LENGTH_BYTE_ARRAY"}}}
        for name, options in ways.items():
            pyarrow.parquet.write_table(table, self.folder / f"{name}.parquet", **options)
        for compression in ("uncompressed", "lz4", "zstd"):
            pyarrow.feather.write_feather(table, self.folder / f"{compression}.feather", compression=compression, chunksize=300)
        paths = sorted(self.folder.iterdir())
        for path, line in zip(paths, run("read", *paths).rstrip("\n").split("\n"), strict=True):
            is_feather = path.suffix == ".feather"
            read = json.loads(line)
            self.compare(read, path, (pyarrow.feather.read_table if is_feather else pyarrow.parquet.read_table)(path))
            if is_feather:
                self.assertEqual(read["groups"], [300, 300, 300, 100])

    def test_numbers_can_be_categories(self):
        table = table_of_all_types(100, 2)
        path = self.folder / "t.parquet"
        pyarrow.parquet.write_table(table, path)
        read = json.loads(run("read", path))["columns"]
        for name in ("int8", "int64", "uint64", "bool", "string"):
            self.assertEqual(read[name]["texts"], texts_in(table.column(name)))

    def test_a_file_of_pandas(self):
        frame = pandas.DataFrame({"n": [1, None, 3], "c": pandas.Categorical(["b", None, "a"]), "s": ["x", None, "y"],
                                  "i": pandas.array([1, None, 2], dtype="Int64")}, index=["p", "q", "r"])
        frame.to_parquet(self.folder / "f.parquet")
        frame.reset_index().to_feather(self.folder / "f.feather")
        for path in self.folder.iterdir():
            read = json.loads(run("read", path))["columns"]
            self.assertEqual([read[name]["values"] for name in "ncsi"],
                             [[1, None, 3], ["b", None, "a"], ["x", None, "y"], [1, None, 2]])

    def test_an_epoch_visits_each_training_row_once_group_by_group(self):
        rows = 1000
        table = pyarrow.table({"row": [f"r{row}" for row in range(rows)], "x": numpy.arange(rows, dtype=float)})
        path = self.folder / "t.parquet"
        pyarrow.parquet.write_table(table, path, row_group_size=100)
        alone = json.loads(run("order", path, 0))
        self.assertEqual(alone, json.loads(run("order", path, 3)))
        self.assertNotEqual(alone[0], alone[1])
        self.assertEqual(sorted(alone[0]), sorted(alone[1]))
        self.assertEqual(len(set(alone[0])), 800)  # without the held-out fifth
        groups = [int(row[1:]) // 100 for row in alone[0]]
        changes = [group for i, group in enumerate(groups) if group not in groups[:i]]
        windows, seen = [], set()  # of at least 200 rows, so of three groups of about 80 training rows
        for i, group in enumerate(groups):
            if group not in seen and len(seen) % 3 == 0:
                windows.append(i)
            seen.add(group)
        self.assertEqual(len(windows), 4)
        for start, end in zip(windows, windows[1:] + [len(groups)]):
            self.assertLessEqual(len(set(groups[start:end])), 3)
        self.assertNotEqual(changes, sorted(changes))

    def test_damaged_files_are_errors(self):
        """Each bit that is changed gives an error of this file, or numbers; cut files are errors."""
        draw = random.Random(3)
        table = table_of_all_types(50, 3)
        pyarrow.parquet.write_table(table, self.folder / "t.parquet", row_group_size=20)
        pyarrow.feather.write_feather(table, self.folder / "t.feather", compression="uncompressed")
        pyarrow.feather.write_feather(table, self.folder / "z.feather", compression="zstd")
        paths, cut = [], []
        for whole in sorted(self.folder.iterdir()):
            content = whole.read_bytes()
            for number in range(120):
                damaged = bytearray(content)
                for _ in range(draw.choice([1, 1, 3, 20])):
                    damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
                paths.append(self.folder / f"{number}-{whole.name}")
                paths[-1].write_bytes(damaged)
            for length in [0, 3, 4, 12, len(content) // 2, len(content) - 5, len(content) - 1]:
                cut.append(self.folder / f"cut{length}-{whole.name}")
                cut[-1].write_bytes(content[:length])
        lines = run("try", *paths, *cut).splitlines()
        results = [line for line in lines if line.startswith(("read ", "error: "))]
        self.assertEqual(len(results), len(paths) + len(cut), lines[-3:])
        self.assertTrue(all(line.startswith("error: ") for line in results[-len(cut):]), results[-len(cut):])
        self.assertTrue(all(path.name in line for path, line in zip(cut, results[-len(cut):])))
        self.assertGreater(sum(line.startswith("error: ") for line in results), len(paths) // 5)

    def test_csv_is_what_pythons_csv_and_pandas_read(self):
        draw = random.Random(4)
        paths = [self.folder / f"{number}.csv" for number in range(60)]
        words = ["", "a", "a,b", '"', 'x"y', "two\nlines", "cr\r\nlf", " blank ", "NA", "nan", "1", "-2.5", "1e3", "Köln", "0x10", "1_000"]
        for path in paths:
            columns = [f"c{k}" for k in range(draw.randrange(2, 6))]
            choices = [draw.sample(words, draw.randrange(1, 5)) if draw.random() < 0.6 else ["1", "2.5", "", "-3e2", "NA"] for _ in columns]
            rows = [[draw.choice(choice) for choice in choices] for _ in range(draw.randrange(1, 60))]
            text = io.StringIO()
            csv.writer(text, quoting=draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
                       lineterminator=draw.choice(["\n", "\r\n"])).writerows([columns, *rows])
            path.write_bytes(draw.choice([b"", b"\xef\xbb\xbf"]) + text.getvalue().encode())
        for path, line in zip(paths, run("read", *paths).rstrip("\n").split("\n"), strict=True):
            with open(path, encoding="utf-8-sig", newline="") as file:
                columns, *pythons = csv.reader(file)
            frame = pandas.read_csv(path, keep_default_na=True, skip_blank_lines=True)
            read = json.loads(line)["columns"]
            for k, name in enumerate(columns):
                missing = {None, "", "NA", "nan"}
                with self.subTest(path=path.name, column=name):
                    self.assertEqual(read[name]["texts"], [None if row[k] in missing else row[k] for row in pythons])
                    if pandas.api.types.is_numeric_dtype(frame[name]):
                        self.assertFalse(read[name]["is_category"])
                        self.assertEqual(read[name]["values"], [None if math.isnan(value) else value for value in frame[name]])
                    else:
                        self.assertTrue(read[name]["is_category"])


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
