"""The parts of cmake/LevinParts.cmake."""
import re


def needs(sources):
    """Returns {part: the parts that it needs}, without core."""
    text = (sources / "cmake/LevinParts.cmake").read_text()
    found = re.findall(r'^levin_part\((\w+) HOLDS "[^"]*"(?:\s+NEEDS ([\w ]+))?$', text, re.M)
    return {name: needs.split() for name, needs in found}


def packages(sources):
    """Returns {part: the packages that CMake searches for}, in CMake's or pkg-config's names. LibTorch is not among them."""
    text = (sources / "cmake/LevinParts.cmake").read_text()
    found = {name: needed.split() for name, needed in re.findall(r"^levin_part\((\w+) [^)]*\n  PACKAGES (.+)$", text, re.M)}
    found.update({name: [] for name in needs(sources) if name not in found})  # parts that need no package
    found["text"].append("SentencePiece")  # cmake/LevinSentencePiece.cmake
    root = (sources / "CMakeLists.txt").read_text()
    found["core"] = re.findall(r"^find_package\(([\w-]+)|^pkg_check_modules\(.* (\w+)\)$|^include\(Levin(Gloo)\)", root, re.M)
    found["core"] = ["".join(names) for names in found["core"]]
    return found
