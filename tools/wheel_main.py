"""The `levin` command of the wheel: bin/levin, which checks the version of LibTorch, with the torch of this Python."""
import importlib.util
import os
import sys
from pathlib import Path


def main():
    os.environ.setdefault("LEVIN_PYTHON", sys.executable)
    torch = importlib.util.find_spec("torch")  # does not import it
    if "LEVIN_TORCH_DIR" not in os.environ and torch is not None and torch.submodule_search_locations:
        os.environ["LEVIN_TORCH_DIR"] = torch.submodule_search_locations[0]
    program = str(Path(__file__).parent / "bin/levin")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
