"""The numbers that several pages quote, in a comment that no reader sees, before the text with the numbers:

  <!-- same
  start_ms: 274
  weights: 0.9472 0.9440
  -->

Each number must be in the text up to the next heading, every page must give a name the same numbers, and a name must be on
several pages or in several sections. A number may be rounded: 15 agrees with 15.1. docs.py calls check_same.
"""
import re

from figures import NUMBER

COMMENT = re.compile(r"<!-- same\n(.*?)-->", re.S)


def section_after(text, position):
    """Returns the text up to the next heading outside of fenced blocks."""
    kept, inside = [], text.count("\n```", 0, position) % 2 == 1
    for line in text[position:].splitlines():
        inside ^= line.startswith("```")
        if line.startswith("#") and not inside:
            break
        kept.append(line)
    return "\n".join(kept)


def agree(a, b):
    """Whether two numbers, as text, are equal up to the rounding of the coarser one."""
    digits = min(len(text.partition(".")[2]) for text in (a, b))
    return a == b or (("." in a or "." in b) and abs(float(a) - float(b)) <= 0.5001 * 10.0 ** -digits)


def numbers_in(text):
    return {number.split()[0].replace(",", "") for number in NUMBER.findall(re.sub(r"[|*`~]", " ", text))}


def check_same(pages):
    """Yields "file:line: what is wrong". `pages`: {name: text}"""
    quoted = {}  # name: [(place, numbers)…]
    for page, text in pages.items():
        for comment in COMMENT.finditer(text):
            present = numbers_in(section_after(text, comment.end()))
            for at, line in enumerate(comment.group(1).splitlines(), text.count("\n", 0, comment.start()) + 2):
                name, _, values = line.partition(":")
                values = values.replace(",", "").split()
                quoted.setdefault(name.strip(), []).append((f"{page}:{at}", values))
                if missing := [value for value in values if value not in present] or (not values and ["number"]):
                    yield f"{page}:{at}: {name}: the text up to the next heading has no {', '.join(missing)}."
    for name, places in quoted.items():
        (first, values), others = places[0], places[1:]
        if not others:
            yield f"{first}: {name} is quoted only here. Name it where it is measured too, or remove it."
        for place, different in others:
            if len(values) != len(different) or not all(map(agree, values, different)):
                yield f"{place}: {name} is {' '.join(different)} here and {' '.join(values)} in {first}."
