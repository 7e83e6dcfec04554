"""Tests of ./dev that need no download: commands, messages, and how setup handles problems."""
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import unittest

from script import ALL_INSTALLED, FAKE_PIP, SOURCES, ScriptTest
from waiting import alive, wait_until


def listed(section):
    """The packages of a section of cmake/debian-packages.txt."""
    text = (SOURCES / "cmake/debian-packages.txt").read_text()
    return re.search(rf"(?m)^\[{section}\].*\n((?:.+\n)+)", text)[1].split()


class Dev(ScriptTest):
    def test_help_lists_every_command(self):
        status, output = self.dev("help")
        self.assertEqual(status, 0)
        for word in ("setup", "build", "check", "levin", "run", "bench", "bundle", "wheel", "packages", "gpu-check", "flaky",
                     "differential", "soak", "mutate", "coverage", "fuzz", "format", "lint", "docs"):
            self.assertRegex(output, rf"(?m)^  {word}\b")
        self.assertEqual(self.dev()[1], output)
        self.assertEqual(self.dev("--help")[1], output)

    def test_an_unknown_command_is_refused_with_the_known_commands(self):
        status, output = self.dev("chekc")
        self.assertEqual(status, 2)
        self.assertIn('"chekc"', output)
        self.assertIn("setup build check levin run bench bundle wheel packages gpu-check flaky differential soak mutate coverage fuzz format lint docs help", output)

    def test_every_command_of_the_help_is_implemented(self):
        for command in re.findall(r"(?m)^  ([a-z][\w-]*)", self.dev("help")[1]):
            if command != "help":
                self.assertIn(f"def do_{command.replace('-', '_')}(", (SOURCES / "tools/dev/__main__.py").read_text())

    def test_contributing_names_every_label(self):
        text = (SOURCES / "CONTRIBUTING.md").read_text()
        listed = text[text.index("Labels: "):text.index("`nightly`") + len("`nightly`")]
        files = [SOURCES / "tests/CMakeLists.txt", *(SOURCES / "tests").glob("*/tests.cmake")]
        found = re.findall(r'\bLABELS? "?([a-z_;]+)', re.sub("#.*", "", "".join(path.read_text() for path in files)))
        self.assertIn("bench;nightly", found)
        self.assertEqual({label for labels in found for label in labels.split(";") if f"`{label}`" not in listed}, set())

    def test_wrong_options_are_refused_before_anything_is_done(self):
        for arguments, part in [(("setup", "--gpu"), "--gpu"), (("check", "--preset", "fast"), 'unknown preset "fast"'),
                                (("build", "--fast"), "--fast"), (("bundle", "--small"), "--small"), (("format", "all"), "all"),
                                (("flaky", "often"), '"often"'), (("soak", "long"), '"long"'), (("soak",), "minutes"),
                                (("differential", "many"), "how many"),
                                (("mutate", "tools", "few"), '"tools few"'), (("mutate", "nowhere", "5"), '"nowhere"'),
                                (("coverage", "nowhere"), '"nowhere"'), (("fuzz", "jason"), '"jason"'), (("fuzz", "yaml", "soon"), '"soon"'),
                                (("check", "--torch="), "--torch needs a value"), (("check", "--preset", ""), "--preset needs a value"),
                                (("check", "--label="), "--label needs a value"), (("bundle", "--output="), "--output needs a value"),
                                (("check", "--torch", "2.15", "--preset", "asan"), "the environment of the preset asan")]:
            status, output = self.dev(*arguments)
            self.assertEqual(status, 2, output)
            self.assertIn(part, output)
        self.assertFalse(self.home.exists())

    def test_without_root_the_command_for_root_is_printed(self):
        self.program("id", "#!/bin/sh\necho 1000\n")
        self.program("dpkg-query", "#!/bin/sh\necho installed g++\nexit 1\n")
        self.program("apt-get", f"#!/bin/sh\necho apt-get >> {self.calls}\n")
        status, output = self.dev("setup")
        self.assertEqual(status, 3, output)
        self.assertRegex(output, r"sudo apt-get install -y .*\bcmake\b.*\blibyaml-cpp-dev\b")
        self.assertNotIn("g++", output)
        self.assertEqual(self.calls.read_text(), "")

    def test_root_installs_only_what_is_missing(self):
        self.program("id", "#!/bin/sh\necho 0\n")
        self.program("dpkg-query", ALL_INSTALLED.replace("-*|", "-*|mold|ccache|"))
        self.program("apt-get", f'#!/bin/sh\necho "$@" >> {self.calls}\n')
        self.make_torch()
        status, output = self.dev("setup")
        self.assertEqual(status, 0, output)
        self.assertRegex(self.calls.read_text(), r"install .*\bccache mold\n$")
        self.assertNotIn("g++", self.calls.read_text())

    def test_a_failing_apt_shows_the_end_of_its_log(self):
        self.program("id", "#!/bin/sh\necho 0\n")
        self.program("dpkg-query", "#!/bin/sh\nexit 1\n")
        self.program("apt-get", "#!/bin/sh\necho 'E: the mirror is away'\nexit 100\n")
        status, output = self.dev("setup")
        self.assertEqual(status, 100, output)
        self.assertIn("E: the mirror is away", output)
        self.assertIn(str(self.home / "logs/apt.log"), output)

    def test_a_machine_without_dpkg_prints_what_the_build_needs(self):
        (self.bin / "dpkg-query").unlink()
        for name in ("bash", "dirname", "nproc", "sort", "id", "env", "sed", "uname", "python3"):
            (self.bin / name).symlink_to(shutil.which(name))
        self.make_torch()
        status, output = self.dev("setup", PATH=str(self.bin))
        self.assertEqual(status, 0, output)
        self.assertRegex(output, "not a Debian machine.*libyaml-cpp-dev")

    def make_machine_bare(self, user):
        """A machine with bash, coreutils and apt; the only Python is the one that its apt-get installs."""
        for name in ("bash", "cat", "dirname", "env", "ldd", "mktemp", "rm", "sed", "tail", "uname"):
            (self.bin / name).symlink_to(shutil.which(name))
        self.make_torch()
        script = self.checkout / "dev"
        script.write_text(script.read_text().replace("/usr/bin/python3", f"{self.bin}/python3"))
        self.program("id", f"#!/bin/sh\necho {user}\n")
        self.program("apt-get", f'#!/bin/sh\necho apt-get "$@" >> {self.calls}\n'
                                f'[ "$1" = update ] || /bin/ln -s {sys.executable} {self.bin}/python3\n')
        return {"PATH": str(self.bin)}

    def test_a_machine_without_python_gets_one_first(self):
        bare = self.make_machine_bare(0)
        self.assertRegex(self.dev("help", **bare)[1], "^usage: ")
        self.assertEqual(self.dev("chekc", **bare)[0], 2)
        self.assertEqual(self.calls.read_text(), "")
        status, output = self.dev("setup", **bare)
        self.assertEqual(status, 0, output)
        self.assertIn("setup: everything is in place", output)
        self.assertRegex(self.calls.read_text(), r"^apt-get update .*\napt-get install -y .* python3\n$")

    def test_a_machine_without_python_and_root_prints_the_command_for_root(self):
        status, output = self.dev("setup", **self.make_machine_bare(1000))
        self.assertEqual(status, 3, output)
        wanted = listed("build") + listed("parts")
        self.assertIn(f"sudo apt-get install -y --no-install-recommends {' '.join(wanted)}\n", output)
        self.assertEqual(self.calls.read_text(), "")

    def test_too_little_disk_space_is_reported_before_the_download(self):
        self.program("df", "#!/bin/sh\nprintf 'head\\n/dev/x 1 1 77 1%% /\\n'\n")
        self.program("python3", FAKE_PIP)
        status, output = self.dev("setup")
        self.assertEqual(status, 3, output)
        self.assertIn("1300 MB free", output)
        self.assertIn("77 MB", output)
        self.assertIn("LEVIN_HOME", output)
        self.assertEqual(self.left_in_home(), [])
        self.assertEqual(self.calls.read_text(), "")

    def test_libtorch_is_fetched_by_hash_and_only_what_cpu_builds_need(self):
        self.program("python3", FAKE_PIP)
        status, output = self.dev("setup")
        self.assertEqual(status, 0, output)
        self.assertIn("--require-hashes", self.calls.read_text())
        self.assertIn("cmake/libtorch-cpu.txt", self.calls.read_text())
        self.assertEqual(self.left_in_home(), ["libtorch-2.11.0-cpu"])
        torch = self.home / "libtorch-2.11.0-cpu/torch"
        self.assertTrue((torch / "lib/libtorch_cpu.so").exists())
        self.assertTrue((torch / "../nvidia/cu13/lib/libcudart.so.13").exists())
        self.assertFalse((torch / "lib/libtorch_cuda.so").exists())
        self.assertFalse((torch / "nn").exists())

    def test_cuda_is_fetched_only_where_it_is_wanted(self):
        self.program("python3", FAKE_PIP)
        self.assertEqual(self.dev("setup", "--cuda")[0], 0)
        self.assertIn("cmake/libtorch-cuda.txt", self.calls.read_text())
        self.assertTrue((self.home / "libtorch-2.11.0-cuda/torch/lib/libtorch_cuda.so").exists())

    def test_a_failed_download_leaves_nothing_and_can_be_retried(self):
        self.program("python3", FAKE_PIP.replace('echo "$*"', 'echo "no such host"; exit 1; echo'))
        status, output = self.dev("setup")
        self.assertEqual(status, 3, output)
        self.assertIn("no such host", output)
        self.assertEqual(self.left_in_home(), [])
        self.program("python3", FAKE_PIP)
        self.assertEqual(self.dev("setup")[0], 0)

    def test_wheels_without_the_library_are_not_taken_for_libtorch(self):
        self.program("python3", FAKE_PIP.replace("torch/csrc/api/include/torch/torch.h", "torch/other.h"))
        status, output = self.dev("setup")
        self.assertEqual(status, 3, output)
        self.assertEqual(self.left_in_home(), [])

    def test_an_interrupted_download_leaves_nothing_that_looks_complete(self):
        started = self.root / "started"
        self.program("python3", FAKE_PIP.replace('echo "$*"', f'touch {started}; sleep 50; echo'))
        process = self.start("setup")
        wait_until(started.exists, "the download")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 130)
        self.assertEqual(self.left_in_home(), [])

    def start(self, *arguments):
        """./dev in the background, as the leader of a process group."""
        process = subprocess.Popen([self.checkout / "dev", *arguments], env=self.environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def expect_line(self, process, part, unexpected=None):
        for line in process.stdout:
            if unexpected:
                self.assertNotIn(unexpected, line)
            if part in line:
                return
        self.fail(f'it has ended without the line "{part}"')

    def test_an_interrupt_ends_the_children_of_children(self):
        self.pretend_to_build()
        pids = self.root / "pids"
        # The second child ignores TERM, as does the subshell around it.
        self.program("ninja", f"#!/bin/sh\nsleep 1000 & echo $! > {pids}\n(trap '' TERM; sleep 1000) & echo $! >> {pids}\n"
                              "echo go > started\nwait\n")
        os.mkfifo(self.checkout / "started")
        process = self.start("build")
        with open(self.checkout / "started") as started:
            started.read()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=30), 130)
        for pid in pids.read_text().split():
            wait_until(lambda: not alive(pid), f"the end of process {pid}", seconds=20)

    def test_an_interrupt_while_a_program_starts_leaves_nothing_behind(self):
        """At forty moments of the start. Whatever is left keeps the output open."""
        script = ("import os, signal, sys; sys.path.insert(0, sys.argv[1]); import steps; steps.exit_on_signals()\n"
                  "signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))\n"
                  "signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]))\n"
                  "with steps.group(['sleep', '30']) as process: process.wait()\n")
        for k in range(1, 41):
            done = subprocess.run([sys.executable, "-B", "-c", script, SOURCES / "tools/dev", str(0.0002 * k)], text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
            self.assertEqual((done.returncode, done.stdout), (130, ""))

    def test_of_two_setups_at_once_the_second_waits_and_finds_the_work_done(self):
        go, started = self.root / "go", self.root / "started"
        os.mkfifo(go)
        os.mkfifo(started)
        self.program("python3", FAKE_PIP.replace('echo "$*"', f'echo started > {started}; read line < {go}; echo "$*"'))
        first = self.start("setup")
        with open(started) as file:
            file.read()
        second = self.start("setup")
        self.expect_line(second, "waiting for another set-up", unexpected="fetching")
        with open(go, "w") as file:
            file.write("go\n")
        self.assertEqual([first.wait(60), second.wait(60)], [0, 0])
        self.assertEqual(self.calls.read_text().count("pip download"), 1)
        self.assertEqual(self.left_in_home(), ["libtorch-2.11.0-cpu"])

    def python_packages(self, pip):
        """Makes a list of packages, and a pip that runs the given commands, with its last argument (the folder) as $target."""
        self.make_torch()
        shutil.copy(SOURCES / "cmake/python-packages.txt", self.checkout / "cmake")
        self.program("python3", '#!/bin/bash\n[ "$3" = --version ] && exit 0\necho "$*" >> "$CALLS"\n'
                                f'target=${{@: -1}}\n{pip}\n')

    def test_python_packages_are_fetched_by_hash_into_a_separate_folder(self):
        self.python_packages('mkdir "$target/safetensors"')
        for _ in range(2):  # the second time there is nothing to do
            status, output = self.dev("setup")
            self.assertEqual(status, 0, output)
        self.assertRegex(self.calls.read_text(), r"^-m pip install .*--require-hashes .*python-packages.txt.*\n$")
        self.assertEqual(self.left_in_home(), ["libtorch-2.11.0-cpu", "python"])
        self.assertTrue((self.home / "python/safetensors").is_dir())

    def test_without_python_packages_setup_continues_with_a_message(self):
        self.python_packages('echo "no such host"; exit 1')
        status, output = self.dev("setup")
        self.assertEqual(status, 0, output)
        self.assertIn("no such host", output)
        self.assertIn("the tests that need them are skipped", output)
        self.assertEqual(self.left_in_home(), ["libtorch-2.11.0-cpu"])

    def test_libtorch_is_not_fetched_if_the_user_has_one(self):
        self.program("python3", FAKE_PIP)
        self.assertEqual(self.dev("setup", LEVIN_TORCH_DIR="/somewhere")[0], 0)
        self.assertEqual(self.calls.read_text(), "")

    def test_setup_is_quick_and_quiet_when_nothing_is_to_be_done(self):
        self.make_torch()
        (self.bin / "dpkg-query").unlink()  # the real one
        self.dev("setup")
        start = os.times()
        status, output = self.dev("setup")
        end = os.times()
        if status == 3 or "apt packages" in output:
            self.skipTest("not all packages are installed here")
        self.assertEqual(len(output.splitlines()), 1, output)
        # Processor time, which other work on the machine does not lengthen.
        self.assertLess(end.children_user + end.children_system - start.children_user - start.children_system, 0.2)

    def test_two_builds_in_one_tree_take_turns(self):
        self.pretend_to_build()
        os.mkfifo(self.root / "go")
        self.program("ninja", f"#!/bin/sh\necho start >> {self.calls}\nread word < {self.root}/go\necho end >> {self.calls}\n")

        def expect_to_wait(process):
            self.expect_line(process, "build/release: waiting for another call of ./dev in this tree\n", unexpected="[4/4]")

        def ninjas():
            return [word for word in self.calls.read_text().split() if word in ("start", "end")]

        def let_ninja_end():
            ended = ninjas().count("end")
            with open(self.root / "go", "w") as go:  # waits for a ninja that reads
                go.write("go\n")
            wait_until(lambda: ninjas().count("end") > ended, "the end of ninja")

        first = self.start("build")
        wait_until(ninjas, "the first ninja")
        second = self.start("build")
        expect_to_wait(second)
        self.assertEqual(ninjas(), ["start"])
        first.kill()  # its ninja continues, and still writes to the folder
        first.wait()
        third = self.start("build")
        expect_to_wait(third)
        self.assertEqual(ninjas(), ["start"])
        for _ in range(3):
            let_ninja_end()
        self.assertEqual([second.wait(60), third.wait(60)], [0, 0])
        self.assertEqual(ninjas(), ["start", "end"] * 3)

    def test_a_failed_build_shows_the_first_error(self):
        self.pretend_to_build()
        self.program("ninja", "#!/bin/sh\necho '[1/90] fine'\necho 'FAILED: a.o'\necho 'a.cpp:1: error: no'\n"
                              "seq 200\nexit 1\n")
        status, output = self.dev("build")
        self.assertEqual(status, 1, output)
        self.assertIn("a.cpp:1: error: no", output)
        self.assertNotIn("fine", output)

    def test_the_tool_runs_in_the_folder_of_the_caller_with_its_own_exit_status(self):
        self.pretend_to_build()
        tool = self.checkout / "build/release/bin/levin"
        tool.parent.mkdir(parents=True)
        tool.write_text('#!/bin/sh\npwd\necho "$@"\nexit 5\n')
        tool.chmod(0o755)
        done = subprocess.run([self.checkout / "dev", "levin", "fit", "--trainer.max_epochs=3", "a b"], cwd=self.root,
                              env=self.environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertEqual(done.stdout, f"{self.root}\nfit --trainer.max_epochs=3 a b\n")

    def test_a_bundle_is_built_with_what_its_name_says(self):
        self.pretend_to_build()
        shutil.copytree(self.home / "libtorch-2.11.0-cpu", self.home / "libtorch-2.11.0-cuda")
        shutil.copy(SOURCES / "CMakeLists.txt", self.checkout)
        self.program("cmake", f'#!/bin/sh\necho cmake "$LEVIN_TORCH_DIR" "$@" >> {self.calls}\n')
        self.tool("tools/bundle.py", "print('made it')")
        for arguments, name, targets in ((["bundle"], "", "bin/levin levin_sentencepiece"),
                                         (["bundle", "--cuda", "--tests", "--output", "a.tar.xz"], "-cuda-tests",
                                          "bin/levin levin_sentencepiece levin_cuda levin_bench cuda_test levin_stand_in_nvidia")):
            self.calls.write_text("")
            status, output = self.dev(*arguments)
            self.assertEqual(status, 0, output)
            self.assertTrue(output.endswith("made it\n"), output)
            calls = self.calls.read_text()
            self.assertRegex(calls, rf"ninja -C build/release -j \d+ {targets}\n")
            self.assertRegex(calls, rf"tools/bundle.py build/release levin-[0-9.]+-linux-{platform.machine()}{name} /\S+\.tar\.xz"
                             + (r" --cuda --tests --peers \S+/peers-2.11.0\n" if name else r"\n"))
            self.assertEqual(f"cmake {self.home}/libtorch-2.11.0-cuda --preset release" in calls, bool(name), calls)
        self.assertIn(f"{os.getcwd()}/a.tar.xz", calls)

    def pretend_to_configure_packages(self):
        (self.checkout / "build/release").mkdir(parents=True)
        (self.checkout / "build/release/CPackConfig.cmake").touch()

    def test_a_wheel_and_debian_packages_are_made_of_a_release_build(self):
        self.pretend_to_build()
        self.tool("tools/wheel.py", "print('made it')")
        self.program("cpack", f"#!/bin/sh\necho cpack $@ >> {self.calls}\necho packed\n")
        self.pretend_to_configure_packages()
        for command, last, call in (("wheel", "made it", "tools/wheel.py build/release build"),
                                    ("packages", "packed", "cpack --config build/release/CPackConfig.cmake -B build/packages")):
            self.calls.write_text("")
            status, output = self.dev(command)
            self.assertEqual(status, 0, output)
            self.assertTrue(output.endswith(f"{last}\n"), output)
            calls = self.calls.read_text()
            self.assertRegex(calls, r"ninja -C build/release -j \d+ bin/levin levin_sentencepiece\n")
            self.assertIn(call, calls)
            self.assertEqual(self.dev(command, "all")[0], 2)

    def test_packages_that_cannot_be_made_are_refused_before_the_build(self):
        self.pretend_to_build()
        status, output = self.dev("packages", LEVIN_TORCH_DIR="/opt/libtorch-2.9")
        self.assertEqual(status, 3, output)
        self.assertIn("made on Debian, with its libtorch-dev or with LibTorch 2.11.0 of ./dev setup.\ndev: Unset LEVIN_TORCH_DIR", output)
        self.assertNotIn("ninja", self.calls.read_text())

    def test_without_a_driver_gpu_check_runs_at_once_in_the_folder_of_the_caller(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("this machine has NVIDIA's driver")
        self.pretend_to_build()
        self.tool("tools/gpu_check.py", f"open({str(self.calls)!r}, 'a').write(os.getcwd() + '\\n')\nsys.exit(77)")
        done = subprocess.run([self.checkout / "dev", "gpu-check", "--only", "device"], cwd=self.root, env=self.environment)
        self.assertEqual(done.returncode, 77)
        self.assertEqual(self.calls.read_text(), f"{self.checkout}/tools/gpu_check.py --only device\n{self.root}\n")

    def test_a_benchmark_is_built_and_run(self):
        self.pretend_to_build()
        program = self.checkout / "build/release/bin/bench_overhead"
        program.parent.mkdir(parents=True)
        program.write_text('#!/bin/sh\necho ran "$@"\n')
        program.chmod(0o755)
        status, output = self.dev("bench", "overhead", "--rounds=3")
        self.assertEqual((status, output.splitlines()[-1]), (0, "ran --rounds=3"), output)
        self.assertIn("levin_bench", self.calls.read_text())

    def test_an_example_is_built_alone_and_run_in_the_callers_folder(self):
        self.pretend_to_build()
        (self.checkout / "examples").mkdir()
        (self.checkout / "examples/01_first.cpp").touch()
        program = self.checkout / "build/release/bin/01_first"
        program.parent.mkdir(parents=True)
        program.write_text('#!/bin/sh\necho "ran $* in $PWD"\n')
        program.chmod(0o755)
        done = subprocess.run([self.checkout / "dev", "run", "01_first", "fast"], cwd=self.root, env=self.environment,
                              stdout=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, f"ran fast in {self.root}\n"))
        self.assertRegex(self.calls.read_text(), r"(?m)^ninja .* bin/01_first$")
        self.assertEqual(self.dev("run"), (0, "examples: 01_first\n"))
        status, output = self.dev("run", "02_second")
        self.assertEqual(status, 2)
        self.assertIn('no example is called "02_second"', output)

    def test_debian_packages_have_the_part_cuda_where_it_is_wanted(self):
        self.pretend_to_build()
        shutil.copytree(self.home / "libtorch-2.11.0-cpu", self.home / "libtorch-2.11.0-cuda")
        self.program("cpack", f'#!/bin/sh\necho cpack "$@" >> {self.calls}\necho made them\n')
        self.pretend_to_configure_packages()
        for wanted, targets in (("0", "bin/levin levin_sentencepiece"), ("1", "bin/levin levin_sentencepiece levin_cuda")):
            self.calls.write_text("")
            status, output = self.dev("packages", LEVIN_CUDA=wanted)
            self.assertEqual((status, output.splitlines()[-1]), (0, "made them"), output)
            self.assertRegex(self.calls.read_text(), rf"(?m)^ninja .* {targets}\ncpack ")

    def test_the_first_example_needs_only_its_own_packages_and_parts(self):
        self.pretend_to_build()
        self.program("id", "#!/bin/sh\necho 0\n")
        self.program("dpkg-query", "#!/bin/sh\nexit 1\n")
        self.program("apt-get", f'#!/bin/sh\necho apt-get "$@" >> {self.calls}\n')
        (self.checkout / "examples").mkdir()
        tree = self.checkout / "build/release"
        for name in ("01_minimal", "02_other"):
            (self.checkout / f"examples/{name}.cpp").touch()
            (tree / "bin").mkdir(parents=True, exist_ok=True)
            (tree / "bin" / name).write_text("#!/bin/sh\n")
            (tree / "bin" / name).chmod(0o755)
        # As CMake: writes what it was told into the cache.
        self.program("cmake", f'''#!/bin/sh
for word; do case $word in -DLEVIN_ALL_PARTS=*) echo "LEVIN_ALL_PARTS:BOOL=${{word#*=}}" > {tree}/CMakeCache.txt ;; esac; done
echo "LEVIN_TORCH_INCLUDE:PATH={self.home}" >> {tree}/CMakeCache.txt
touch {tree}/build.ninja
echo cmake "$@" >> {self.calls}
''')

        def calls_of(name):
            self.calls.write_text("")
            self.assertEqual(self.dev("run", name)[0], 0)
            installed = re.findall(r"(?m)^apt-get install .*", self.calls.read_text())
            configured = re.findall(r"(?m)^cmake .*", self.calls.read_text())
            return set(installed[0].split()), configured

        for _ in range(2):  # the second time it is configured
            installed, configured = calls_of("01_minimal")
            self.assertLessEqual(set(listed("build")), installed)
            self.assertFalse(set(listed("parts")) & installed)
        self.assertEqual(configured, [])
        installed, (configured,) = calls_of("02_other")
        self.assertLessEqual({*listed("build"), *listed("parts")}, installed)
        self.assertIn("-DLEVIN_ALL_PARTS=ON -DLEVIN_BUILD_TOOL=ON ", configured)
        installed, configured = calls_of("01_minimal")
        self.assertEqual(configured, [], "what has all parts keeps them")
        self.assertLessEqual(set(listed("parts")), installed)

    def test_peers_are_installed_once_and_share_files_with_libtorch(self):
        self.make_peers_lists()
        self.make_torch()
        shared = self.home / "libtorch-2.11.0-cpu/torch/lib/libtorch_cpu.so"
        shared.write_bytes(bytes(2000000))
        status, output = self.dev("bench", "--peers")
        self.assertEqual(status, 0, output)
        peers = self.home / "peers-2.11.0"
        self.assertIn(f"installed in {peers}", output)
        call = self.calls.read_text()
        for part in ("--require-hashes", "--no-deps", "cmake/libtorch-cuda.txt", "bench/peers/requirements.txt"):
            self.assertIn(part, call)
        self.assertTrue((peers / "torch/lib/libtorch_cpu.so").samefile(shared))
        self.assertTrue((peers / "torch/lib/libtorch_cuda.so").is_file())
        self.assertTrue((peers / "torch/include").is_dir())  # torch.compile compiles with it
        self.assertFalse((peers / "nvidia/cu13/include").exists())
        self.assertEqual(self.left_in_home(), ["libtorch-2.11.0-cpu", "peers-2.11.0"])
        status, output = self.dev("bench", "--peers")
        self.assertEqual((status, self.calls.read_text()), (0, call), output)
        self.assertIn("in place", output)

    def test_peers_that_cannot_be_installed_leave_nothing(self):
        self.make_peers_lists()
        status, output = self.dev("bench", "--peers", FAIL="7")
        self.assertEqual(status, 3, output)
        self.assertIn("benchmarks leave them out", output)
        self.assertEqual(self.left_in_home(), [])
        self.program("df", "#!/bin/sh\necho Filesystem\necho '/dev/x 9 9 812 9% /'\n")
        status, output = self.dev("bench", "--peers")
        self.assertEqual(status, 3, output)
        self.assertIn("812 MB", output)

    def test_a_benchmark_gets_the_folder_of_its_peers(self):
        self.make_peers_lists()
        self.pretend_to_build()
        program = self.checkout / "build/release/bin/bench_overhead"
        program.parent.mkdir(parents=True)
        program.write_text('#!/bin/sh\necho "peers: $LEVIN_PEERS"\n')
        program.chmod(0o755)
        self.assertEqual(self.dev("bench", "overhead")[1].splitlines()[-1], "peers: ")
        self.assertEqual(self.dev("bench", "--peers")[0], 0)
        self.assertEqual(self.dev("bench", "overhead")[1].splitlines()[-1], f"peers: {self.home}/peers-2.11.0")
        (self.checkout / "bench/peers/requirements.txt").write_text("lightning==3.0\n")  # a different list than installed
        self.assertEqual(self.dev("bench", "overhead")[1].splitlines()[-1], "peers: ")
        status, output = self.dev("bench", "--peers", "now")
        self.assertEqual(status, 2)
        self.assertIn('"now"', output)

    def test_lint_checks_the_format_the_layers_and_the_named_files(self):
        self.pretend_to_build()
        self.tool("tests/layers/check_layers.py", "")
        self.tool("cmake/tidy_database.py", "os.makedirs(sys.argv[2], exist_ok=True)")
        for status in (0, 1):
            self.calls.write_text("")
            self.program("clang-tidy", f'#!/bin/sh\necho clang-tidy "$@" >> {self.calls}\nexit {status}\n')
            self.assertEqual(self.dev("lint", "a.cpp", "b.h")[0], status)
            cmake, *others = self.calls.read_text().splitlines()
            self.assertIn("-DLEVIN_ALL_PARTS=ON", cmake)
            self.assertEqual(others, ["tests/layers/check_layers.py .", "cmake/tidy_database.py build/release build/lint",
                                      "clang-tidy --quiet -p build/lint --warnings-as-errors=* a.cpp"])

    def test_lint_of_all_checks_what_the_build_compiles_as_one(self):
        self.pretend_to_build()
        self.tool("tests/layers/check_layers.py", "")
        self.tool("cmake/tidy_database.py", """os.makedirs(sys.argv[2], exist_ok=True)
open(sys.argv[2] + "/compile_commands.json", "w").write('[{"file": "/unity_0_cxx.cxx"}, {"file": "/one.cpp"}]')""")
        self.program("clang-tidy", f'#!/bin/sh\necho clang-tidy "$@" >> {self.calls}\n')
        self.assertEqual(self.dev("lint", "--all")[0], 0)
        calls = [line for line in self.calls.read_text().splitlines() if line.startswith("clang-tidy")]
        self.assertEqual(sorted(call.split()[-1] for call in calls), ["/one.cpp", "/unity_0_cxx.cxx"])
        for call in calls:
            self.assertIn(f" --header-filter=^{re.escape(str(self.checkout))}/.* ", call)

    def test_fuzz_builds_the_targets_and_runs_those_asked_for(self):
        self.make_torch()
        script = "tests/fuzz/run_fuzz.py"
        self.tool(script, "sys.exit('checkpoint' in sys.argv)")
        self.assertEqual(self.dev("fuzz", "yaml", "5")[0], 0)
        self.assertEqual(self.calls.read_text().splitlines(), [f"{script} build", f"{script} run yaml 5"])
        self.calls.write_text("")
        self.assertEqual(self.dev("fuzz")[0], 1)
        self.assertEqual(self.calls.read_text().splitlines()[1:],
                         [f"{script} run {target} 600" for target in ("checkpoint", "data", "exported", "images", "loggers", "mlflow", "onnx",
                                                                      "ranks", "runs", "streams", "sweep", "tokenizer", "weights", "yaml")])

    def test_an_unknown_benchmark_is_refused_with_the_known_benchmarks(self):
        status, output = self.dev("bench", "speed")
        self.assertEqual(status, 2)
        self.assertIn('"speed"', output)
        self.assertIn("overhead", output)

    def test_the_presets_build_all_parts_and_a_test_preset_without_tests_fails(self):
        """With the real CMake, in a folder that `./dev run 01_minimal` has configured with few parts."""
        shutil.copy(SOURCES / "CMakePresets.json", self.checkout)
        (self.checkout / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(x NONE)\noption(LEVIN_ALL_PARTS \"\" ON)\noption(LEVIN_BUILD_TOOL \"\" ON)\n")

        def parts_with(*options):
            subprocess.run(["cmake", "--no-warn-unused-cli", "--preset", "release", *options], cwd=self.checkout, check=True, stdout=subprocess.PIPE)
            cache = (self.checkout / "build/release/CMakeCache.txt").read_text()
            return re.findall(r"(?m)^(?:LEVIN_ALL_PARTS|LEVIN_BUILD_TOOL):BOOL=(\w+)$", cache)

        self.assertEqual(parts_with("-DLEVIN_ALL_PARTS=OFF", "-DLEVIN_BUILD_TOOL=OFF"), ["OFF", "OFF"])
        self.assertEqual(parts_with(), ["ON", "ON"])
        done = subprocess.run(["ctest", "--preset", "release"], cwd=self.checkout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("No tests were found", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
