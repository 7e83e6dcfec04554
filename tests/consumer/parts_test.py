#!/usr/bin/env python3
"""parts_test.py PROGRAM LIBRARIES: runs a program that links only levin::core, with the other parts and without them."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, LIBRARIES = (pathlib.Path(p).resolve() for p in sys.argv[1:3])

# What `ldd` may name beside LibTorch's own libraries: the C and C++ runtime, and the table of docs/architecture.md.
OF_CORE = {"liblevin_core", "libtorch_cpu", "libc10", "libyaml-cpp", "libspdlog", "libfmt", "libxxhash"}
OF_RUNTIME = {"libstdc++", "libgcc_s", "libm", "libc", "libdl", "libpthread", "librt", "linux-vdso", "ld-linux-x86-64",
              "ld-linux-aarch64"}


def short(name):
    return pathlib.PurePath(name).name.split(".so")[0]


def needed_by(library):
    return {short(line.split()[0]) for line in subprocess.check_output(["ldd", str(library)], text=True).splitlines()}


def library_of(part):
    """The file liblevin_PART.so.0.2, the name that other files know it by."""
    return LIBRARIES / (LIBRARIES / f"liblevin_{part}.so").readlink()


class Parts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        shutil.copy(library_of("core"), self.folder)

    def run_alone(self, *arguments):
        """Runs the program with a copy of levin_core in a folder without other parts."""
        return self.run_program(*arguments, environment={"LD_LIBRARY_PATH": str(self.folder)})

    def missing(self, part):
        """The error of run_alone for what is in a part."""
        return (f"in the part levin_{part}, which this Levin does not have (there is no {self.folder / library_of(part).name}). "
                f"Build it with -DLEVIN_{part.upper()}=ON, or install the package levin-{part}.")

    def run_program(self, *arguments, environment=None):
        done = subprocess.run([str(PROGRAM), *map(str, arguments)], capture_output=True, text=True, timeout=120,
                              env=environment)
        return f"{done.returncode}: {done.stdout.strip()}"

    def test_a_program_that_links_core_loads_no_library_of_another_part(self):
        torch = next(line.split()[2] for line in subprocess.check_output(["ldd", str(PROGRAM)], text=True).splitlines()
                     if "libtorch_cpu" in line)
        self.assertLessEqual(needed_by(PROGRAM) - needed_by(torch), OF_CORE | OF_RUNTIME)

    def test_core_alone_trains(self):
        self.assertRegex(self.run_alone("train", self.folder / "run"), r"^0: (.|\n)*\n8 steps$")
        files = {p.name for p in (self.folder / "run").rglob("*") if p.is_file()}
        self.assertIn("metrics.csv", files)
        self.assertTrue(any(name.endswith(".ckpt") for name in files), files)

    def test_a_class_is_found_in_the_part_that_has_it(self):
        for kind, name in (("data", "Hdf5Data"), ("data", "ImageFolderData"), ("data", "Mnist"), ("data", "lightning.TextFile"),
                           ("callback", "LoRA"), ("callback", "EarlyStopping"), ("model", "HuggingFaceLM"), ("logger", "SQLiteLogger")):
            output = self.run_program(kind, name)
            # A class with required options reports them, which it can only do once it is found.
            self.assertTrue(output.startswith("0: found ") or "is required" in output or "must be" in output, output)
            self.assertNotIn("unknown", output)

    def test_a_class_of_a_part_that_is_missing_names_the_part_and_how_to_get_it(self):
        for part, kind, name in (("arrays", "data", "Hdf5Data"), ("downloads", "data", "Mnist"), ("images", "data", "ImageFolderData"),
                                 ("models", "callback", "LoRA"), ("models", "model", "HuggingFaceLM"), ("text", "data", "TextFile"),
                                 ("streams", "data", "StreamData"), ("tracking", "logger", "SQLiteLogger")):
            with self.subTest(part, kind=kind):
                self.assertEqual(self.run_alone(kind, name), f"0: run.yaml:3:5: here: {name} is {self.missing(part)}")
        self.assertIn('unknown callback "EarlyStoping". Did you mean "EarlyStopping"?', self.run_alone("callback", "EarlyStoping"))

    def test_a_list_of_classes_has_those_of_the_parts_that_are_there(self):
        self.assertEqual(self.run_alone("list").split(), ["0:", "CsvData", "ParquetData", "TableCsv"])
        self.assertEqual(set(self.run_program("list")[3:].split()),
                         {"CsvData", "FashionMnist", "Hdf5Data", "ImageFolderData", "Mnist", "NpyData", "ParquetData", "StreamData", "TableCsv",
                          "TextCsv", "TextFile", "TokenFileData"})

    def test_an_image_needs_the_encoder_of_the_part_images(self):
        self.assertEqual(self.run_program("image"), "0: PNG")
        self.assertEqual(self.run_alone("image"), f"1: log_image: the PNG encoder is {self.missing('images')}")

    def test_a_part_of_another_version_is_refused(self):
        library = pathlib.Path(shutil.copy(library_of("arrays"), self.folder))
        content = library.read_bytes()
        self.assertIn(b"Levin 0.", content)
        library.write_bytes(content.replace(b"Levin 0.", b"Levin 9."))
        self.assertRegex(self.run_alone("data", "NpyData"), r"liblevin_arrays\.so\.0\.\d+ was built for Levin 9\.\S+ with LibTorch \S+, and "
                         r"this is Levin 0\.\S+ with LibTorch \S+\. Build or install both together\.$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
