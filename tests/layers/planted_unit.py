"""A build with one unit of two files, for the tests of the scripts that read units."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def run_on_unit(script, one, other):
    """Runs a script of this folder on a unit of one.cpp and other.cpp; returns its status and what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder, "Unity/unity_0_cxx.cxx")
        unit.parent.mkdir()
        for name, text in (("one.cpp", one), ("other.cpp", other)):
            Path(folder, name).write_text(text)
        unit.write_text("".join(f'#include "{folder}/{name}"\n' for name in ("one.cpp", "other.cpp")))
        Path(folder, "compile_commands.json").write_text(json.dumps(
            [{"directory": folder, "file": str(unit), "command": f"c++ -std=c++20 -O2 -o a.o -c {unit}"}]))
        done = subprocess.run([sys.executable, "-B", Path(__file__).parent / script, folder], stdout=subprocess.PIPE, text=True)
        return done.returncode, done.stdout.replace(folder, "")
