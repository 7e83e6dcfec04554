"""The parts of cmake/LevinParts.cmake."""
import re


def needs(sources):
    """Returns {part: the parts that it needs}, without core."""
    text = (sources / "cmake/LevinParts.cmake").read_text()
    found = re.findall(r'^levin_part\((\w+) HOLDS "[^"]*"(?:\s+NEEDS ([\w ]+))?$', text, re.M)
    return {name: needs.split() for name, needs in found}
