"""Reads LibTorch's headers, for ./dev and for the scripts that pack a build."""
import re


def torch_version(include):
    """Returns LibTorch's version as [major, minor] from the header that has it, as cmake/LevinTorch.cmake; [] if none has."""
    for header in ("torch/csrc/api/include/torch/version.h", "torch/headeronly/version.h"):
        text = (include / header).read_text() if (include / header).exists() else ""
        numbers = re.findall(r"define TORCH_VERSION_(?:MAJOR|MINOR) (\d+)", text)
        if numbers:
            return [int(number) for number in numbers]
    return []
