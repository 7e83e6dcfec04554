"""PyTorch for Python with Hugging Face's packages, as `./dev check --peers` installs them, for tests that compare with both.

    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
    import peers
    peers.run_under_peers("peft", "peft, transformers and PyTorch for Python")     # then import them
"""

import os
import pathlib
import subprocess
import sys

SKIPPED = 77
HOME = pathlib.Path(os.environ.get("LEVIN_HOME") or
                    pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "levin")
PACKAGES = HOME / "models-python"


def find_python(package):
    """(Python, PYTHONPATH) that has PyTorch and `package`; nothing where there is none."""
    for folder in sorted(HOME.glob("peers-*")):
        if (folder / "python3").exists() and (PACKAGES / package).is_dir():
            return str(folder / "python3"), f"{PACKAGES}:{folder}"
    return None


def run_under_peers(package, needed):
    """Runs the calling program again under that Python and ends with its status; there it returns. Ends with the status
    of a skipped test, and says what is needed, where there is none."""
    if os.environ.get("LEVIN_PEERS_CHILD") is not None:
        return
    found = find_python(package)
    if found is None:
        print(f"skipped: needs {needed}. Run ./dev check --peers.")
        sys.exit(SKIPPED)
    env = {**os.environ, "PYTHONPATH": found[1], "LEVIN_PEERS_CHILD": "1", "HF_HUB_OFFLINE": "1",
           "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    sys.exit(subprocess.run([found[0], "-B", *sys.argv], env=env).returncode)
