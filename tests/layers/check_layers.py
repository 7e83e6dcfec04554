#!/usr/bin/env python3
"""Checks which way the doors open: python3 tests/layers/check_layers.py [ROOT]

Scans every #include of the library against layer_rules.py, and the tree for what is easily forgotten: a source that no
CMakeLists.txt builds, a header that nothing includes, a test that no list runs, a file grown too long.
Prints "file:line: what is wrong. The rule." for each finding; exit status 1 if there are any.
"""
import re
import sys
from pathlib import Path

import layer_rules as rules

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes_of(path):
    """(line number, quoted or angled, included path) of every #include."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match.group(1), match.group(2)


def sources_in(root, folder):
    """The sources that stand in a folder itself: a subfolder is a layer of its own."""
    if not (root / folder).is_dir():
        return []
    return sorted(p for p in (root / folder).iterdir() if p.suffix in (".h", ".cpp") and p.is_file())


def layer_of(included):
    """The folder that an include of "levin/…" enters; "." for levin/levin.h and levin/train.h."""
    return "/".join(included.split("/")[1:-1]) or "."


def check_edges(root):
    for folder, allowed in rules.MAY_INCLUDE.items():
        for path in sources_in(root, folder):
            file = path.relative_to(root).as_posix()
            may = [*rules.BELOW_TRAINER, *rules.TRAINER] if file in rules.BODIES else allowed
            for number, bracket, included in includes_of(path):
                where = f"{file}:{number}"
                if included.startswith("levin/"):
                    entered = layer_of(included)
                    if entered != folder and entered not in may:
                        yield (f'{where}: {folder} -> {entered} is forbidden ("{included}"). '
                               f'{folder} may include: {", ".join(may) or "nothing of Levin but itself"}.')
                    if not (root / included.removeprefix("levin/")).is_file():
                        yield f'{where}: "{included}" does not exist in the tree.'
                elif bracket == '"':
                    yield f'{where}: "{included}" must be spelled "levin/<folder>/<file>.h".'
                for pattern, is_allowed, rule in rules.RESERVED:
                    if re.search(pattern, included) and not is_allowed(file):
                        yield f"{where}: includes {included}. Rule: {rule}."


def check_names(root):
    for folder in set(rules.MAY_INCLUDE) - {"libtorch"}:
        for path in sources_in(root, folder):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if found := re.search(rules.RESERVED_NAMES, line.partition("//")[0]):
                    yield (f"{path.relative_to(root)}:{number}: uses {found.group()}. "
                           "Rule: only libtorch/ uses what is not LibTorch's public interface.")


def check_torch_free(root):
    """Follows the includes of all TORCH_FREE files at once, and reports each include of LibTorch with one chain to it."""
    chains = {}
    for name in rules.TORCH_FREE:
        for path in sources_in(root, name) or sorted(root.glob(f"{name}.*")):
            file = path.relative_to(root).as_posix()
            chains[file] = [file]
    waiting = list(chains)
    for file in waiting:
        for number, _, included in includes_of(root / file):
            if re.match(r"(torch|ATen|c10|caffe2)/", included):
                yield (f"{file}:{number}: leads to LibTorch: {' -> '.join([*chains[file], included])}. "
                       "Rule: files of TORCH_FREE in tests/layers/layer_rules.py include no LibTorch, directly or not.")
            other = included.removeprefix("levin/")
            if included.startswith("levin/") and other not in chains and (root / other).is_file():
                chains[other] = [*chains[file], other]
                waiting.append(other)


def check_fields_are_templates(root):
    """A function that is not a template is compiled in each file that includes its header, called or not."""
    for folder in rules.MAY_INCLUDE:
        for path in sources_in(root, folder):
            lines = path.read_text(encoding="utf-8").splitlines() if path.suffix == ".h" else []
            for before, (number, line) in zip(["", *lines], enumerate(lines, 1)):
                if re.match(r"\s*static auto fields\(\)", line) and not re.match(r"\s*template <", before):
                    yield (f"{path.relative_to(root)}:{number}: fields() is not a template. "
                           "Rule: headers write `template <class = void> static auto fields()` (core/options/fields.h).")


def words_of_cmake(path):
    text = re.sub(r"#.*", "", path.read_text(encoding="utf-8")) if path.is_file() else ""
    return set(re.split(r'[\s()"]+', text))


def check_sources_are_built(root):
    for folder in rules.MAY_INCLUDE:
        for path in sources_in(root, folder):
            if path.suffix != ".cpp" and not path.name.endswith(rules.PRECOMPILED):
                continue
            nearest = next(p for p in path.parents if (p / "CMakeLists.txt").is_file() or p == root)
            if path.relative_to(nearest).as_posix() not in words_of_cmake(nearest / "CMakeLists.txt"):
                yield (f"{path.relative_to(root)}:1: is in no list of {nearest.relative_to(root) / 'CMakeLists.txt'}. "
                       "Rule: every source of a folder is built.")


def parts_of(root):
    """The part of each file that a CMakeLists.txt names, and of its header: {"data/files/hdf5": "arrays"}."""
    parts = {}
    for path in sorted(root.glob("*/CMakeLists.txt")):
        for call in re.finditer(r"levin_(?:module_)?sources\s*\(([^)]*)\)", re.sub(r"#.*", "", path.read_text(encoding="utf-8"))):
            words = call.group(1).split()
            part = words[words.index("PART") + 1] if "PART" in words else "core"
            for word in words:
                if word.endswith(".cpp"):
                    parts[f"{path.parent.name}/{word.removesuffix('.cpp')}"] = part
    return parts


def check_parts(root):
    """A header without a source of its own belongs to no part: everyone may include it."""
    parts = parts_of(root)
    for unit, part in parts.items():
        may = ["core", part, *rules.PARTS.get(part, [])]
        for path in (root / f"{unit}.h", root / f"{unit}.cpp"):
            for number, _, included in includes_of(path) if path.is_file() else []:
                other = parts.get(included.removeprefix("levin/").removesuffix(".h"), "core")
                if included.startswith("levin/") and other not in may:
                    yield (f'{path.relative_to(root)}:{number}: the part {part} may not include "{included}" of {other}. '
                           f"It may include {', '.join(may)}.")


def check_headers_are_included(root):
    everywhere = [p for p in root.rglob("*") if p.suffix in (".h", ".cpp") and in_tree(root, p)]
    included = {(i, p) for p in everywhere for _, _, i in includes_of(p)}
    for folder in rules.MAY_INCLUDE:
        for path in sources_in(root, folder):
            name = "levin/" + path.relative_to(root).as_posix()
            if path.suffix != ".h" or path.name.endswith(rules.PRECOMPILED) or name == "levin/levin.h":
                continue
            if not any(i == name and p != path for i, p in included):
                yield f"{path.relative_to(root)}:1: nothing includes this header. Rule: no forgotten files."


def check_tests_are_run(root):
    tests = root / "tests"
    listed = words_of_cmake(tests / "CMakeLists.txt")
    for path in tests.glob("*/tests.cmake"):
        listed |= words_of_cmake(path)
    for path in sorted(tests.rglob("*_test.cpp")):
        if path.relative_to(tests).as_posix() not in listed:
            yield f"{path.relative_to(root)}:1: is in no levin_test() list. Rule: every test is run."


def in_tree(root, path):
    return not {"build", ".git"} & set(path.relative_to(root).parts)


def check_lengths(root):
    for path in sorted(p for p in root.rglob("*") if p.suffix in (".h", ".cpp") and in_tree(root, p)):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        file = path.relative_to(root).as_posix()
        if lines > rules.MOST_LINES and file not in rules.LONG_FILES:
            yield (f"{file}:{rules.MOST_LINES + 1}: has {lines} lines. Rule: {rules.MOST_LINES} at most, or a reason in "
                   "LONG_FILES of tests/layers/layer_rules.py.")


def check_folders_are_known(root):
    for path in sorted(root.glob("*/CMakeLists.txt")):
        if not re.search(r"target_sources\s*\(\s*levin\b|levin_(module_)?sources\s*\(", path.read_text(encoding="utf-8")):
            continue
        for folder in sorted({p.parent for p in path.parent.rglob("*") if p.suffix in (".h", ".cpp")} | {path.parent}):
            name = folder.relative_to(root).as_posix()
            if name not in rules.MAY_INCLUDE:
                yield f"{path.relative_to(root)}:1: {name} is not in MAY_INCLUDE of tests/layers/layer_rules.py."


def units_of(root):
    """What each unit (NAME.h with NAME.cpp) includes of other units: {unit: {unit: where}}."""
    units = {}
    for folder in rules.MAY_INCLUDE:
        for path in sources_in(root, folder):
            unit = path.relative_to(root).as_posix()
            unit = unit if unit in rules.BODIES else path.relative_to(root).with_suffix("").as_posix()
            found = units.setdefault(unit, {})
            for number, _, included in includes_of(path):
                other = included.removeprefix("levin/").removesuffix(".h")
                if included.startswith("levin/") and other != unit:
                    found.setdefault(other, f"{path.relative_to(root)}:{number}")
    return units


def check_units_have_no_cycles(root):
    """Reports each chain of includes that comes back to its first unit once, by the include that closes it."""
    units = units_of(root)
    done, chain = set(), []

    def visit(unit):
        chain.append(unit)
        for other, where in units.get(unit, {}).items():
            if other in chain:
                cycle = [*chain[chain.index(other):], other]
                yield (f"{where}: closes a cycle of units: {' -> '.join(cycle)}. "
                       "Rule: units (NAME.h with NAME.cpp) do not include each other.")
            elif other not in done:
                yield from visit(other)
        chain.pop()
        done.add(unit)

    for unit in sorted(units):
        if unit not in done:
            yield from visit(unit)


def findings_of(root):
    for check in (check_folders_are_known, check_edges, check_names, check_torch_free, check_fields_are_templates,
                  check_parts, check_sources_are_built, check_headers_are_included, check_tests_are_run, check_lengths,
                  check_units_have_no_cycles):
        yield from check(root)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    findings = list(findings_of(root))
    print("\n".join(findings) if findings else "layers: every include points down, nothing is forgotten")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
