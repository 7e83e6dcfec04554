"""Finds the places of C++ files that a single change can break, by clang's syntax tree, and writes such changes.

Needs Debian's python3-clang-14. A mutant is one small change: another operator, a number that is off by one, a call left
out, two arguments swapped, an early return, an inverted condition. Texts of errors and of the log are left alone.
"""
import re
from collections import namedtuple

from clang_tree import clang_arguments, load_cindex

# The bytes from `start` to `end` of a file become `text`. `how`: "choose", an expression for an expression; "drop", a
# statement is left out; "insert", a statement comes before.
Edit = namedtuple("Edit", "start end how text")
# `file`: relative to the root of the tree; `constexpr`: where that word stands, if this changes a constant.
Mutant = namedtuple("Mutant", "file kind edits constexpr")

OPERATORS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+",
             "*": "/", "/": "*", "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "++": "--", "--": "++"}
COMPARISONS = {"<", "<=", ">", ">=", "==", "!="}
NUMBER = re.compile(r"(\d[\d']*(?:\.\d*)?(?:e[-+]?\d+)?)([uUlLfF]*)$")
# Calls whose arguments are messages of the log or of an error. The calls of the log change nothing else.
LOG_CALLS = re.compile(r"(?:\w+::)*(?:log::|warn|format|print|describe|message)", re.I)
TEXT_CALLS = re.compile(rf"{LOG_CALLS.pattern}|(?:\w+::)*(?:fail|error|bad_|refuse|report_exception)|problems\.add\b", re.I)
# Calls that only save memory or time.
HINT_CALLS = re.compile(r"(?:reserve|shrink_to_fit|madvise|posix_fadvise|prefetch|RECORD_FUNCTION|ignore)$")
# Functions of two arguments that return the same when these are swapped.
SYMMETRIC = ("min", "max", "equal", "swap")
FUNCTIONS = ("FUNCTION_DECL", "CXX_METHOD", "CONSTRUCTOR", "DESTRUCTOR", "CONVERSION_FUNCTION", "FUNCTION_TEMPLATE")
BODIES = ("COMPOUND_STMT", "IF_STMT", "FOR_STMT", "CXX_FOR_RANGE_STMT", "WHILE_STMT", "DO_STMT", "CASE_STMT", "DEFAULT_STMT")
LEFT_OUT = ("CXX_THROW_EXPR", "STATIC_ASSERT", "ENUM_DECL", "TYPE_REF", "TYPE_ALIAS_DECL", "TYPEDEF_DECL", "STRING_LITERAL")


def find_mutants(root, command, files):
    """All mutants of files that are compiled by a command. Raises ValueError if clang cannot read them."""
    cindex = load_cindex()
    text = "".join(f'#include "{file}"\n' for file in files)
    tree = cindex.Index.create().parse("unit.cpp", args=clang_arguments(command), unsaved_files=[("unit.cpp", text)])
    errors = [str(each) for each in tree.diagnostics if each.severity >= cindex.Diagnostic.Error]
    if errors:
        raise ValueError(f"clang cannot read {files[0]}:\n" + "\n".join(errors[:5]))
    finders = {str(file): Finder(file.relative_to(root), file.read_bytes()) for file in files}
    for child in tree.cursor.get_children():
        at = child.location.file
        if at and at.name in finders:
            finders[at.name].visit(child, None, None)
    return [mutant for finder in finders.values() for mutant in finder.mutants]


class Finder:
    """The mutants of one file."""

    def __init__(self, name, source):
        self.name, self.source, self.mutants = str(name), source, []
        self.switch_ends = set()

    def text(self, start, end):
        return self.source[start:end].decode(errors="replace")  # a character at the end may be cut

    def add(self, kind, constant, *edits):
        self.mutants.append(Mutant(self.name, kind, edits, constant))

    def choose(self, kind, constant, cursor, text):
        self.add(kind, constant, Edit(cursor.extent.start.offset, cursor.extent.end.offset, "choose", text))

    def visit(self, cursor, parent, constant):
        """`constant`: where the word constexpr of the variable around this stands."""
        kind = cursor.kind.name
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        if kind in LEFT_OUT or kind.endswith("CALL_EXPR") and TEXT_CALLS.match(self.text(start, end)):
            return
        if kind == "VAR_DECL":
            words = self.text(start, cursor.location.offset)
            if "constexpr" in words:
                constant = start + words.index("constexpr")
        elif kind in FUNCTIONS:
            self.visit_function(cursor)
            if re.search(r"\bconst(?:expr|eval)\b", self.text(start, cursor.location.offset)):
                return
        children = list(cursor.get_children())
        left_out = None
        if kind == "IF_STMT":
            left_out = self.visit_condition(cursor, children)
        elif kind == "CASE_STMT":
            left_out = children[0]
        elif kind in ("BINARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR"):
            self.visit_operator(cursor, children, constant)
        elif kind == "UNARY_OPERATOR":
            self.visit_unary(cursor, parent, children, constant)
        elif kind == "CALL_EXPR":
            self.visit_call(cursor, constant)
        elif kind == "SWITCH_STMT":
            self.switch_ends.add(end)
        elif kind in ("BREAK_STMT", "CONTINUE_STMT") and not self.ends_switch(end):
            self.drop(f"drop {kind[:-5].lower()}", cursor)
        elif kind in ("INTEGER_LITERAL", "FLOATING_LITERAL"):
            self.visit_number(cursor, constant)
        elif kind == "CXX_BOOL_LITERAL_EXPR":
            word = self.text(start, end)
            if word in ("true", "false"):
                self.choose("true or false", constant, cursor, "false" if word == "true" else "true")
        for child in children:
            if left_out is None or child != left_out:
                if kind in BODIES:
                    self.visit_statement(child)
                self.visit(child, cursor, constant)

    def visit_function(self, cursor):
        bodies = [child for child in cursor.get_children() if child.kind.name == "COMPOUND_STMT"]
        if not bodies or self.source[bodies[-1].extent.start.offset:][:1] != b"{":
            return
        at = bodies[-1].extent.start.offset + 1
        is_void = cursor.kind.name in ("CONSTRUCTOR", "DESTRUCTOR") or cursor.result_type.spelling == "void"
        first = self.text(at, at + 80)
        if re.match(r"\s*\}", first) or not is_void and re.match(r"\s*return (?:\{\}|0|false|nullptr);", first):
            return
        self.add("early return", None, Edit(at, at, "insert", " return;" if is_void else " return {};"))

    def visit_condition(self, cursor, children):
        """Returns the condition if it is constexpr, which cannot depend on the mutant that is chosen."""
        for child in children:
            start, end = child.extent.start.offset, child.extent.end.offset
            before, after = self.text(cursor.extent.start.offset, start), self.text(end, end + 80)
            if re.match(r"if\s+constexpr\b", before):
                return child
            if child.kind.is_expression() and re.match(r"if\s*\((?:.*;)?\s*$", before, re.S) and re.match(r"\s*\)", after):
                if not re.fullmatch(r"[^()&|]+ [!=]= [^()&|]+", self.text(start, end)):  # whose operator is changed
                    self.choose("inverted condition", None, child, f"!({self.text(start, end)})")
                return None
        return None

    def visit_operator(self, cursor, sides, constant):
        if len(sides) != 2:
            return
        (start, left), (right, end) = ((side.extent.start.offset, side.extent.end.offset) for side in sides)
        between = self.text(left, right)
        operator = between.strip()
        if operator in OPERATORS and start == cursor.extent.start.offset and end == cursor.extent.end.offset:
            changed = self.text(start, left) + between.replace(operator, OPERATORS[operator]) + self.text(right, end)
            self.choose(f"{operator} becomes {OPERATORS[operator]}", constant, cursor, changed)

    def visit_unary(self, cursor, parent, children, constant):
        text = self.text(cursor.extent.start.offset, cursor.extent.end.offset)
        steps = re.match(r"(\+\+|--)|.*(\+\+|--)$", text, re.S)
        if steps and parent is not None and parent.kind.name != "FOR_STMT":  # a loop that does not end
            operator = steps[1] or steps[2]
            changed = OPERATORS[operator] + text[2:] if steps[1] else text[:-2] + OPERATORS[operator]
            self.choose(f"{operator} becomes {OPERATORS[operator]}", constant, cursor, changed)
        elif re.match(r"!\s*[\w(]", text) and not (parent is not None and parent.kind.name == "IF_STMT"):
            inner = children[0].extent.start.offset if children else cursor.extent.start.offset + 1
            self.choose("! left out", constant, cursor, f"static_cast<bool>({self.text(inner, cursor.extent.end.offset)})")

    def visit_call(self, cursor, constant):
        arguments = [each for each in cursor.get_arguments() if each is not None]
        if cursor.spelling.startswith("operator"):
            operator = cursor.spelling[len("operator"):]
            if len(arguments) == 2 and (operator in COMPARISONS or "Tensor" in cursor.type.spelling):
                self.visit_operator(cursor, arguments, constant)
            return
        if cursor.spelling in SYMMETRIC and len(arguments) == 2:
            return
        spans = [(each.extent.start.offset, each.extent.end.offset) for each in arguments]
        for (a, b), (first, second) in zip(zip(arguments, arguments[1:]), zip(spans, spans[1:])):
            texts = self.text(*first), self.text(*second)
            follows = re.fullmatch(r"\s*,\s*", self.text(first[1], second[0]))
            if plain_type(a) == plain_type(b) != "" and texts[0] != texts[1] and follows:
                self.add("swapped arguments", constant, Edit(*first, "choose", texts[1]), Edit(*second, "choose", texts[0]))

    def visit_statement(self, cursor):
        """A call whose value is not used may be left out."""
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        text = self.text(start, end)
        call = cursor
        while call is not None and call.kind.name == "UNEXPOSED_EXPR":
            call = next(call.get_children(), None)
        if call is None or call.kind.name != "CALL_EXPR" or call.spelling.startswith("operator"):
            return
        before = self.source[:start].rstrip()[-1:]
        if text.endswith(")") and before in (b";", b"{", b"}", b")", b"e", b":") and not LOG_CALLS.match(text) and \
                not HINT_CALLS.search(text[:text.index("(")]):
            self.drop("dropped call", cursor)

    def drop(self, kind, cursor):
        end = cursor.extent.end.offset
        semicolon = re.match(r"\s*;", self.text(end, end + 80))
        if semicolon:
            self.add(kind, None, Edit(cursor.extent.start.offset, end + semicolon.end(), "drop", ";"))

    def ends_switch(self, end):
        """Whether only the end of a switch comes after a statement."""
        rest = re.match(r"\s*;\s*\}", self.text(end, end + 80))
        return bool(rest) and end + rest.end() in self.switch_ends

    def visit_number(self, cursor, constant):
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        number = NUMBER.match(self.text(start, end))
        near = self.source[:start].rstrip()[-1:] + self.source[end:].lstrip()[:1]
        if not number or near[:1] == b"<" and near[1:] in (b">", b",") or near == b"<>":
            return
        digits = number[1].replace("'", "")
        if not digits.isdigit():
            self.choose("number + 1", constant, cursor, f"({number[0]} + 1)")
            return
        self.choose("number + 1", constant, cursor, f"{int(digits) + 1}{number[2]}")
        if int(digits) > 0:
            self.choose("number - 1", constant, cursor, f"{int(digits) - 1}{number[2]}")


def plain_type(argument):
    """The argument's type without const and references; empty if it depends on a template's arguments."""
    name = re.sub(r"\bconst\b|&| ", "", argument.type.get_canonical().spelling)
    return "" if "dependent" in name or "type-parameter" in name else name


def changed_source(source, mutant):
    """The file with this mutant alone."""
    for edit in sorted(mutant.edits, reverse=True):
        source = source[:edit.start] + edit.text.encode() + source[edit.end:]
    return source


def changed_lines(source, mutant):
    """Returns (number of the first changed line, lines before, lines after), without indentation."""
    before, after = (text.decode().split("\n") for text in (source, changed_source(source, mutant)))
    first = next(number for number, (old, new) in enumerate(zip(before, after)) if old != new)
    last = 1
    while before[-last] == after[-last] and min(len(before), len(after)) - last > first:
        last += 1
    return (first + 1, *(tuple(line.strip() for line in lines[first:len(lines) - last + 1]) for lines in (before, after)))


def switchable_source(source, numbered):
    """The file with all these mutants {number: mutant}, each of which runs if levin_mutation::is(number).

    Lines keep their numbers, so that the compiler's errors name the mutants that it does not take.
    """
    edits, words = [], set()
    for number, mutant in numbered.items():
        edits += [(edit, number) for edit in mutant.edits]
        if mutant.constexpr is not None:
            words.add(mutant.constexpr)
    edits += [(Edit(at, at + len("constexpr"), "replace", "const"), None) for at in words]
    edits.sort(key=lambda each: (each[0].start, each[0].how != "insert", -each[0].end, each[1] or 0))

    def render(start, end, inner):
        out, at, index = [], start, 0
        while index < len(inner):
            edit, number = inner[index]
            stop = index + 1
            while stop < len(inner) and inner[stop][0].end <= edit.end and edit.start < edit.end:
                stop += 1
            nested = render(edit.start, edit.end, inner[index + 1:stop])
            chosen = f"levin_mutation::is({number})".encode()
            # Directives and comments to the end of a line cannot stand within an expression of one line.
            text = re.sub(rb"//[^\n]*", b"", edit.text.encode()).replace(b"\n", b" ")
            out.append(source[at:edit.start])
            out.append({"choose": b"(" + chosen + b" ? (" + text + b") : (" + nested + b"))",
                        "drop": b"{ if (!" + chosen + b") " + nested + b" }",
                        "insert": b" if (" + chosen + b")" + text,
                        "replace": text}[edit.how])
            at, index = edit.end, stop
        return b"".join([*out, source[at:end]])

    return render(0, len(source), edits)
