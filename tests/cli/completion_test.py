"""`levin completion` in bash, zsh and fish, each in a terminal: TAB is pressed, and the shell prints the words of the line.

  completion_test.py LEVIN [unittest's arguments]
"""

import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

LEVIN = str(pathlib.Path(sys.argv.pop(1)).resolve())

# Answers completions with the real tool, and shows what a shell has passed to it otherwise.
PROGRAM = f"""#!/bin/sh
if [ "$1" = completion ]; then exec {LEVIN} "$@"; fi
printf 'got:'
for word in "$@"; do printf '<%s>' "$word"; done
echo
"""

START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source <(levin completion bash)"),
    "zsh": (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -u -D; source <(levin completion zsh)"),
    "fish": (["fish", "--no-config", "-i"], "levin completion fish | source"),
}

# What is typed, and the words that the shell passes on.
LINES = [
    ("levin expo\tx", ["export", "x"]),
    ("levin fit --trainer.max_ep\t7", ["fit", "--trainer.max_epochs=7"]),
    ("levin fit --trainer.gradient_clip_algorithm=no\t", ["fit", "--trainer.gradient_clip_algorithm=norm"]),
    ("levin fit --trainer.gradient_clip_algorithm no\t", ["fit", "--trainer.gradient_clip_algorithm", "norm"]),
    ("levin fit --trainer.callbacks+=EarlyS\t", ["fit", "--trainer.callbacks+=EarlyStopping"]),
    ("levin fit --optimizer=Adagr\t --optimizer.initial_acc\t1",
     ["fit", "--optimizer=Adagrad", "--optimizer.initial_accumulator_value=1"]),
    ("levin validate --config my_r\t --optimizer.lr_de\t1", ["validate", "--config", "my_run.yaml", "--optimizer.lr_decay=1"]),
    ("levin fit --config=my_r\t", ["fit", "--config=my_run.yaml"]),
    ("levin check my_r\t", ["check", "my_run.yaml"]),
    ("levin sweep stat\t", ["sweep", "status"]),
    ("levin runs --metr\tx", ["runs", "--metrics=x"]),
    ("levin help EarlyS\t", ["help", "EarlyStopping"]),
    ("levin new my_r\t", ["new", "my_r"]),
]


class Shell:
    """A shell in a terminal."""

    def __init__(self, name, folder):
        command, start = START[name]
        env = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder), "TERM": "xterm", "OMP_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"}
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, env)
        self.text = ""
        self.type(f"{start}\necho rea''dy\n")
        self.wait_for("ready\r?\n")

    def type(self, text):
        os.write(self.terminal, text.encode())

    def wait_for(self, pattern, seconds=60):
        """The match in what the shell has written, without the sequences that move the cursor."""
        end = time.monotonic() + seconds
        while True:
            plain = re.sub(r"\x1b(\[[0-9;?>]*[a-zA-Z]|\][^\x07]*\x07|[()][A-Z0-9]|[=>])", "", self.text)
            if found := re.search(pattern, plain):
                self.text = ""
                return found
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.terminal], [], [], left)[0]:
                raise AssertionError(f"no {pattern!r} in {plain!r}")
            self.text += os.read(self.terminal, 65536).decode(errors="replace")

    def words(self, line):
        """The words that the shell passes to the program at the end of this line."""
        self.type(line + "\n")
        return re.findall(r"<([^>]*)>", self.wait_for(r"got:((?:<[^>\r\n]*>)*)\r?\n")[1])

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


class InAShell(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin_completion_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "levin").write_text(PROGRAM)
        (self.folder / "levin").chmod(0o755)
        (self.folder / "my_run.yaml").write_text("optimizer: {class_path: Adagrad, init_args: {lr: 0.1}}\n")

    def check(self, name):
        if shutil.which(name) is None:
            self.skipTest(f"{name} is not installed")
        shell = Shell(name, self.folder)
        self.addCleanup(shell.close)
        for line, words in LINES:
            with self.subTest(line):
                self.assertEqual(shell.words(line), words)

    def test_bash_completes(self):
        self.check("bash")

    def test_zsh_completes(self):
        self.check("zsh")

    def test_fish_completes(self):
        self.check("fish")


class WithoutAShell(unittest.TestCase):
    def levin(self, *arguments, program=LEVIN):
        return subprocess.run([program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

    def test_a_program_of_another_name_has_functions_of_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            link = pathlib.Path(folder) / "my-waves"
            link.symlink_to(LEVIN)
            script = self.levin("completion", "bash", program=link).stdout
        self.assertIn("complete -F _my_waves my-waves\n", script)
        self.assertNotIn("levin", script)

    def test_an_unknown_shell_is_refused(self):
        for arguments, part in ((["tcsh"], 'unknown shell "tcsh". Known: bash, fish, zsh.'), ([], "a shell is missing."),
                                (["bash", "fit"], 'unexpected argument "fit".')):
            done = self.levin("completion", *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn("levin completion: " + part, done.stderr)

    def test_a_run_file_with_mistakes_does_no_harm(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "bad.yaml"
            file.write_text("optimizer: SGD\ntrainer: [\n")
            done = self.levin("completion", "bash", "--", "fit", "--config", file, "--trainer.max_ep")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "--trainer.max_epochs=\n", ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
