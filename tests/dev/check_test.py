"""Tests of `./dev check`: what it installs and calls, and how it ends. Its summary is made from the output of the real ctest
for a small project of real tests: GoogleTest and unittest programs, and scripts.

  check_test.py SOURCES SKIPPING_PROGRAM [unittest's arguments]
"""
import os
import shutil
import sys
import unittest
from pathlib import Path

from script import ALL_INSTALLED, FAKE_PEERS_PYTHON, FAKE_PIP, SOURCES, ScriptTest
from waiting import alive, wait_until

GOOGLETESTS = Path(sys.argv.pop(1)).resolve()

UNITTESTS = """
import unittest

class Case(unittest.TestCase):
    def test_runs(self):
        print("printed on the way")

    def test_skips(self):
        '''What it does.'''
        self.skipTest("no \\"tone\\" arm")

unittest.main(verbosity=%d)
"""

RESULTS = '<testsuite><testcase name="a" status="run"><system-out>fine</system-out></testcase></testsuite>'


class Calls(ScriptTest):
    """Calls of programs that only record how they were called."""

    def setUp(self):
        super().setUp()
        self.pretend_to_build()
        self.program("ctest", f'#!/bin/sh\necho ctest "$@" >> {self.calls}\n'
                              'while [ $# -gt 1 ]; do [ "$1" = --output-junit ] && results=$2; shift; done\n'
                              f"""[ -z "$results" ] || echo '{RESULTS}' > "$results"\n""")

    def pretend_to_be(self, user):
        self.program("id", f"#!/bin/sh\necho {user}\n")
        self.program("apt-get", f'#!/bin/sh\necho apt-get "$@" >> {self.calls}\n')

    def test_it_sets_up_builds_and_runs_what_was_asked_for(self):
        status, output = self.dev("check", "--label", "unit", "--preset", "asan", "-R", "Early", LEVIN_JOBS="2")
        self.assertEqual(status, 0, output)
        cmake, ninja, ctest = self.calls.read_text().splitlines()
        self.assertIn("--preset asan", cmake)
        self.assertEqual(ninja, "ninja -C build/asan -j 2")
        self.assertRegex(ctest, "^ctest --preset asan -j 2 .*-L unit -R Early$")
        self.assertRegex(output.splitlines()[-1],
                         r"^check: 1 passed, 0 failed, 0 skipped; setup \d+ s, build \d+ s, (packages for tests \d+ s, )?"
                                                r"tests \d+ s, preset asan$")

    def test_a_different_libtorch_is_fetched_and_built_with_in_a_folder_of_its_own(self):
        self.program("python3", FAKE_PIP)
        status, output = self.dev("check", "--torch", "2.15", LEVIN_JOBS="2")
        self.assertEqual(status, 0, output)
        calls = self.calls.read_text()
        self.assertIn("--requirement cmake/libtorch/2.15.txt", calls)
        self.assertIn("--preset torch -B build/torch-2.15", calls)
        self.assertIn("ninja -C build/torch-2.15 -j 2", calls)
        self.assertRegex(calls, r"ctest --test-dir \S+/build/torch-2\.15 .*-LE nightly -L unit\|multi_process")
        self.assertTrue((self.home / "libtorch-2.15.0-cpu/torch/lib/libtorch_cpu.so").exists())
        self.assertTrue(output.splitlines()[-1].endswith("preset torch, LibTorch 2.15"), output)

    def test_an_unknown_libtorch_is_refused_with_the_known_ones(self):
        status, output = self.dev("check", "--torch", "1.13")
        self.assertEqual(status, 2, output)
        self.assertIn('check --torch takes one of 2.7, 2.9, 2.13, 2.15, not "1.13"; without --torch the pinned 2.11', output)

    def test_flaky_repeats_each_test_while_the_processors_are_busy(self):
        self.program("ctest", f'#!/bin/sh\necho ctest "$@" >> {self.calls}\npgrep -fc "while kill -0 [0-9]*; do :; done" >> {self.calls}\nexit 3\n')
        status, output = self.dev("flaky", "7", "-R", "Early", LEVIN_JOBS="2")
        self.assertNotEqual(status, 0, output)
        *_, ctest, busy = self.calls.read_text().splitlines()
        self.assertRegex(ctest, "^ctest --preset release -j 2 .*-R Early --repeat until-fail:7$")
        self.assertGreaterEqual(int(busy), os.cpu_count())

    def test_soak_builds_the_programs_that_it_runs(self):
        script = self.checkout / "tests/soak/soak.py"
        script.parent.mkdir(parents=True)
        script.write_text("import sys\nprint(*sys.argv[3:])\n")
        status, output = self.dev("soak", "0", "7")
        self.assertEqual((status, output.splitlines()[-1]), (0, "0 7"), output)
        self.assertRegex(self.calls.read_text(), r"ninja -C build/release -j \d+ bin/levin levin_test_programs ")

    def test_a_list_of_the_tests_has_no_summary(self):
        status, output = self.dev("check", "-N")
        self.assertEqual(status, 0, output)
        self.assertEqual(self.calls.read_text().splitlines()[-1], "ctest --preset release -N -LE nightly")
        self.assertNotIn("passed", output)

    def test_nightly_tests_run_if_they_are_requested(self):
        for arguments, given in (([], "-LE nightly"), (["--nightly"], ""), (["--label", "nightly"], "-L nightly"),
                                 (["--label=unit"], "-L unit -LE nightly"), (["-R", "bench"], "-R bench"),
                                 (["-LE", "slurm"], "-LE slurm|nightly"), (["--nightly", "-LE", "slurm"], "-LE slurm"),
                                 (["-LE", "slurm", "-R", "bench"], "-R bench -LE slurm")):
            status, output = self.dev("check", "-N", *arguments)
            self.assertEqual(status, 0, output)
            self.assertEqual(self.calls.read_text().splitlines()[-1], f"ctest --preset release -N {given}".strip())

    def test_root_installs_what_tests_need(self):
        self.program("dpkg-query", ALL_INSTALLED.replace("-*|", "clang-14|iproute2|munge|slurmctld|slurmd|-*|"))
        self.pretend_to_be(1000)
        self.assertEqual(self.dev("check")[0], 0)
        self.assertNotIn("apt-get", self.calls.read_text())
        self.pretend_to_be(0)
        status, output = self.dev("check")
        self.assertEqual(status, 0, output)
        self.assertRegex(self.calls.read_text(), r"apt-get install .* iproute2 munge slurmctld slurmd\n(?s:.*)apt-get install .* clang-14\n")

    def test_it_continues_without_fuzzing_where_debian_has_no_clang_14(self):
        self.program("dpkg-query", ALL_INSTALLED.replace("-*|", "clang-14|munge|-*|"))
        self.pretend_to_be(0)
        self.program("apt-get", f"""#!/bin/sh
echo apt-get "$@" >> {self.calls}
case "$*" in *clang-14*) echo "E: Unable to locate package clang-14"; exit 100 ;; esac
""")
        status, output = self.dev("check")
        self.assertEqual(status, 0, output)
        self.assertRegex(self.calls.read_text(), r"apt-get install .* munge\n")
        self.assertIn("E: Unable to locate package clang-14", output)
        self.assertIn("check: continues without clang 14, which this Debian may not have", output)

    def test_pytorch_for_python_is_installed_if_it_is_requested(self):
        self.make_peers_lists()
        self.assertEqual(self.dev("check")[0], 0)
        self.assertNotIn("pip install", self.calls.read_text())
        status, output = self.dev("check", "--peers")
        self.assertEqual(status, 0, output)
        self.assertIn("pip install", self.calls.read_text())
        self.assertIn(f"installed in {self.home}/peers-2.11.0", output)
        self.assertTrue((self.home / "libtorch-2.15.0-cpu/torch/lib/libtorch_cpu.so").exists())

    def test_it_continues_without_pytorch_for_python_if_that_fails(self):
        self.make_peers_lists()
        self.program("python3", FAKE_PIP.replace('echo "$*"', 'echo "no such host"; exit 1; echo'))
        status, output = self.dev("check", "--peers", FAIL="7")
        self.assertEqual(status, 0, output)
        self.assertIn("continues without the newest LibTorch; its tests are skipped", output)
        self.assertIn("continues without PyTorch for Python; the tests with torchrun are skipped", output)
        self.assertIn("check: 1 passed", output.splitlines()[-1])

    def test_packages_for_tests_are_fetched_while_it_builds(self):
        """Each of the two waits for the other: a pipe is opened by both ends or by none."""
        self.make_peers_lists()
        os.mkfifo(self.home / "meeting")
        self.program("ninja", f"#!/bin/sh\nexec timeout 60 sh -c 'echo building > {self.home}/meeting'\n")
        self.program("peers_python", FAKE_PEERS_PYTHON.replace(
            'echo "$*"', f'timeout 60 grep -q building {self.home}/meeting || exit 1\necho "$*"'))
        status, output = self.dev("check", "--peers")
        self.assertEqual(status, 0, output)
        self.assertIn(f"installed in {self.home}/peers-2.11.0", output)

    def test_an_interrupted_build_ends_the_fetching(self):
        self.make_peers_lists()
        pid = self.home / "pid"
        os.mkfifo(self.home / "fetching")
        self.program("peers_python", FAKE_PEERS_PYTHON.replace('echo "$*"', f'echo $$ > {self.home}/fetching\nsleep 60\necho "$*"'))
        self.program("ninja", f"#!/bin/sh\ntimeout 60 cat {self.home}/fetching > {pid}\nexit 5\n")
        status, output = self.dev("check", "--peers")
        self.assertEqual(status, 5, output)
        wait_until(lambda: not alive(pid.read_text().strip()), "the end of the download", seconds=20)

    def test_continuous_integration_asks_for_it(self):
        (self.checkout / ".ci").mkdir()
        shutil.copy(SOURCES / ".ci/run", self.checkout / ".ci")
        (self.checkout / "dev").write_text('#!/bin/sh\necho "$@"\n')
        status, output = self.run_script(".ci/run", "-R", "Early")
        self.assertEqual((status, output), (0, "check --peers -R Early\n"))


class Summary(ScriptTest):
    """Summaries of the real ctest."""

    def setUp(self):
        super().setUp()
        self.pretend_to_build()
        (self.bin / "ctest").unlink()
        (self.checkout / "CMakePresets.json").write_text(
            '{"version": 3, "configurePresets": [{"name": "release", "generator": "Ninja", "binaryDir": '
            '"${sourceDir}/build/release"}], "testPresets": [{"name": "release", "configurePreset": "release", "output": '
            '{"outputOnFailure": true}}]}')
        self.build = self.checkout / "build/release"
        self.build.mkdir(parents=True)
        self.tests = []
        for verbosity in (1, 2):
            (self.build / f"unittests_{verbosity}.py").write_text(UNITTESTS % verbosity)

    def add(self, name, *arguments, **properties):
        self.tests.append(f"add_test([=[{name}]=] " + " ".join(f"[=[{argument}]=]" for argument in arguments) + ")")
        for key, value in properties.items():
            self.tests.append(f"set_tests_properties([=[{name}]=] PROPERTIES {key} [=[{value}]=])")

    def add_suite(self, suite):
        self.add(f"suites.{suite}", GOOGLETESTS, f"--suites={suite}", SKIP_RETURN_CODE=77)

    def add_suites(self):
        """Adds all suites of the program, like levin_test()."""
        self.tests.append(f"include([[{SOURCES}/tests/support/suites.cmake]])\n"
                          f"levin_suites(suites [[{GOOGLETESTS}]] [[{self.build}/suites.cmake]] unit 300 0)")

    def add_script(self, name, text, **properties):
        self.add(name, "sh", "-c", text, **properties)

    def check(self, *arguments):
        """(exit status, the lines from "Skipped" on or else the last one, seconds left out)."""
        (self.build / "CTestTestfile.cmake").write_text("\n".join(self.tests))
        status, output = self.dev("check", *arguments)
        lines = output.splitlines()
        first = lines.index("Skipped, and why:") if "Skipped, and why:" in lines else -1
        self.assertRegex(lines[-1],
                         r"; setup \d+ s, build \d+ s, (packages for tests \d+ s, )?tests \d+ s, preset release$", output)
        lines[-1] = lines[-1][:lines[-1].index("; setup")]
        self.output = output
        return status, lines[first:]

    def test_nothing_is_skipped(self):
        self.add_script("one", "true")
        self.add_script("two", "echo skipped: not really")
        self.assertEqual(self.check(), (0, ["check: 2 passed, 0 failed, 0 skipped"]))

    def test_whole_tests_that_are_skipped(self):
        self.add_script("one", "true")
        self.add_script("launcher", "echo one thing; echo 'skipped: no mpiexec'; exit 77", SKIP_RETURN_CODE=77)
        self.add_script("silent", "exit 77", SKIP_RETURN_CODE=77)
        self.add_script("gpu", "echo no GPU here", SKIP_REGULAR_EXPRESSION="no GPU")
        self.add_script("off", "true", DISABLED="TRUE")
        self.add_suite("SkipsAll")
        self.assertEqual(self.check(), (0, [
            "Skipped, and why:", "  launcher: no mpiexec", "  silent: its output gives no reason", "  gpu: no GPU here",
            "  off: it is disabled in CMake (DISABLED)", "  suites.SkipsAll: no record", "  suites.SkipsAll: no sleeve",
            "check: 1 passed, 0 failed, 5 skipped"]))

    def test_cases_that_are_skipped_in_tests_that_run(self):
        for suite in ("SkipsOne", "SkipsTwo", "SkipsWithoutAWord"):
            self.add_suite(suite)
        for verbosity in (1, 2):
            self.add(f"python_{verbosity}", sys.executable, f"{self.build}/unittests_{verbosity}.py")
        self.assertEqual(self.check(), (0, [
            "Skipped, and why:", "  suites.SkipsOne, SkipsWithAReason alone: this machine has no turntable",
            "  suites.SkipsTwo, 2 of its cases: no needle", "  suites.SkipsWithoutAWord, Skips alone: its output gives no reason",
            "  python_1, 1 of its cases: its output gives no reason: unittest.main(verbosity=2) prints it",
            '  python_2, test_skips alone: no "tone" arm',
            "check: 5 passed, 0 failed, 0 skipped (and 6 cases of tests that ran)"]))

    def test_a_suite_that_fails_and_skips_has_failed(self):
        self.add_suites()
        self.assertEqual(self.check(), (8, [
            "Skipped, and why:", "  suites.SkipsOne, SkipsWithAReason alone: this machine has no turntable",
            "  suites.SkipsTwo, 2 of its cases: no needle", "  suites.SkipsAll: no record", "  suites.SkipsAll: no sleeve",
            "  suites.SkipsWithoutAWord, Skips alone: its output gives no reason",
            "  suites.Fails, Skips alone: no amplifier",
            "check: 3 passed, 2 failed, 1 skipped (and 5 cases of tests that ran)"]))

    def test_suites_of_one_program_run_apart_and_a_crash_ends_only_its_own(self):
        self.add_suites()
        self.check()
        self.assertRegex(self.output, r"suites\.SkipsOne\+SkipsTwo\+SkipsAll\+SkipsWithoutAWord\+Fails\+Crashes .*Failed")
        self.assertRegex(self.output, r"\[ SUITE    \] SkipsAll skipped in [\d.]+ s\n")
        self.assertRegex(self.output, r"Crashes was ended by signal 11\n\[ SUITE    \] Crashes failed in [\d.]+ s\n")
        self.assertEqual(self.output.count("[ RUN      ] SkipsOne."), 2)
        self.assertIn("Total Tests: 1", self.dev("check", "-R", "SkipsTwo", "--show-only")[1])

    def test_a_suite_that_does_not_end_has_failed_and_those_before_it_have_not(self):
        self.add("suites.SkipsAll+SkipsOne+Waits+Fails", GOOGLETESTS, "--suites=SkipsAll:SkipsOne:Waits:Fails", TIMEOUT=2,
                 ENVIRONMENT="GTEST_ALSO_RUN_DISABLED_TESTS=1")
        self.assertEqual(self.check()[1][-1],
                         "check: 1 passed, 2 failed, 1 skipped (and 1 case of tests that ran)", self.output)

    def test_a_reason_after_much_output_is_found(self):
        self.add_script("talks", "seq 100000; echo 'skipped: tired'; exit 77", SKIP_RETURN_CODE=77)
        self.assertEqual(self.check()[1][:2], ["Skipped, and why:", "  talks: tired"])

    def test_tests_that_fail(self):
        self.add_script("one", "true")
        self.add_script("wrong", "echo a scratch; exit 1")
        self.add_script("needs it", "true", FIXTURES_REQUIRED="it")
        self.add_script("makes it", "exit 1", FIXTURES_SETUP="it")
        self.add("missing", "/nowhere/program")
        self.add_script("slow", "sleep 30", TIMEOUT=1)
        self.add_suite("Fails")
        self.add_suite("Crashes")
        self.add_script("launcher", "echo 'skipped: no mpiexec'; exit 77", SKIP_RETURN_CODE=77)
        self.assertEqual(self.check(), (8, [
            "Skipped, and why:", "  suites.Fails, Skips alone: no amplifier", "  launcher: no mpiexec",
            "check: 1 passed, 7 failed, 1 skipped (and 1 case of tests that ran)"]))
        self.assertIn("a scratch", self.output)

    def test_no_test_is_found(self):
        self.add_script("one", "true")
        status, lines = self.check("-R", "nothing_is_called_so")
        self.assertEqual((status, lines), (8, ["check: 0 passed, 0 failed, 0 skipped"]), self.output)
        self.assertIn("No tests were found", self.output)
        self.assertNotIn("wrote no results", self.output)

    def test_ctest_crashes(self):
        self.add_script("one", "true")
        self.add_script("wrong", "exit 1")
        self.add_script("launcher", "echo 'skipped: no mpiexec'; exit 77", SKIP_RETURN_CODE=77)
        self.add_script("kills", "kill -SEGV $PPID", COST=-1)
        self.add_script("last", "true", COST=-2)
        (self.build / "test-results.xml").write_text(RESULTS)  # of an earlier run: not to be believed
        status, lines = self.check("-j1")
        log = self.build / "check.log"
        self.assertEqual((status, lines), (139, [
            "Skipped, and why:", "  launcher: ctest ended before it wrote the reason",
            f"ctest was killed by SIGSEGV and wrote no results: what it printed before is counted ({log}).",
            "  wrong: failed", "check: 1 passed, 1 failed, 1 skipped, 2 not run"]), self.output)


class Reading(ScriptTest):
    """Behaviour that the real ctest does not show by itself."""

    def test_a_ctest_that_succeeds_without_results_is_a_failure(self):
        self.pretend_to_build()
        status, output = self.dev("check")
        self.assertEqual(status, 1, output)
        self.assertIn("ctest ended with status 0 and wrote no results", output)
        self.assertIn("check: 0 passed, 0 failed, 0 skipped", output.splitlines()[-1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
