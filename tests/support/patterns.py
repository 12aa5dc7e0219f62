"""Every regular expression of the product, read from its source: how it is used, and how to make it slow."""

import ast
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src/rackwright"
ANCHORED = frozenset({"match", "fullmatch"})
SEARCHING = frozenset({"search", "sub", "subn", "split", "findall", "finditer"})
FUNCTIONS = ANCHORED | SEARCHING | {"compile"}
FLAGS = {"M": re.M, "MULTILINE": re.M, "DOTALL": re.DOTALL, "S": re.S, "ASCII": re.ASCII, "I": re.I}

Text = str | bytes


@dataclass
class Pattern:
    """One regular expression in the source."""

    module: str
    label: str
    """The constant it is, or else its text, or what puts it together."""
    text: Text | None
    """None: it is put together at run time."""
    flags: int = 0
    methods: set[str] = field(default_factory=set)
    """How it is used. Empty: nobody could be seen to use it."""

    @property
    def key(self) -> str:
        return f"{self.module}: {self.label}"

    def calls(self) -> Iterator[Callable[[Text], object]]:
        assert self.text is not None
        compiled: re.Pattern[str] | re.Pattern[bytes] = re.compile(self.text, self.flags)
        empty = b"" if isinstance(self.text, bytes) else ""
        for method in sorted(self.methods or {"search"}):
            if method in ("sub", "subn"):
                yield partial(compiled.sub, empty)
            elif method == "finditer":
                yield lambda text: [*compiled.finditer(text)]  # type: ignore[arg-type]
            else:
                yield getattr(compiled, method)


def all_patterns(source: Path = SOURCE) -> list[Pattern]:
    """Every pattern below a folder, with how each is used anywhere below it."""
    trees = {path.relative_to(source).as_posix(): ast.parse(path.read_text()) for path in sorted(source.rglob("*.py"))}
    uses = _uses(trees.values())
    patterns = [pattern for module, tree in trees.items() for pattern in _patterns_of(module, tree)]
    for pattern in patterns:
        pattern.methods |= uses.get((pattern.module, pattern.label), set()) | uses.get(("", pattern.label), set())
    return patterns


def _uses(trees: Iterable[ast.Module]) -> dict[tuple[str, str], set[str]]:
    """Which methods are called on a constant, by its name; imported ones count for all that are called so."""
    uses: dict[tuple[str, str], set[str]] = defaultdict(set)
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ANCHORED | SEARCHING:
                name = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
                uses["", name].add(node.attr)
            elif isinstance(node, ast.IfExp):  # (_A if ... else _B).match
                for branch in (node.body, node.orelse):
                    uses["", getattr(branch, "id", "")].add("match")
    return uses


def _patterns_of(module: str, tree: ast.Module) -> Iterator[Pattern]:
    constants = _texts_of(tree)
    names = {id(node.value): node.targets[0].id for node in ast.walk(tree) if _names_one_thing(node)}  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "re":
            if node.func.attr in FUNCTIONS:
                text = _text(node.args[0], constants)
                compiled = node.func.attr == "compile"
                label = names.get(id(node), "") if compiled else ""
                methods = set() if compiled else {node.func.attr}
                label = label or _written(node.args[0])
                yield Pattern(module, label, text, _flags(node), methods)
        else:
            for keyword in node.keywords:
                if keyword.arg == "pattern" and not isinstance(keyword.value, ast.Constant | ast.Name):
                    continue
                if keyword.arg == "pattern":
                    yield Pattern(module, _written(keyword.value), _text(keyword.value, constants), 0, {"search"})


def _written(node: ast.expr) -> str:
    """The pattern's own text, or the expression that makes it."""
    if isinstance(node, ast.Constant):
        return node.value.decode("latin-1") if isinstance(node.value, bytes) else str(node.value)
    return ast.unparse(node)


def _names_one_thing(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)


def _texts_of(tree: ast.Module) -> dict[str, Text]:
    """The constants of a module that are text, put together where they name each other."""
    texts: dict[str, Text] = {}
    for node in tree.body:
        if _names_one_thing(node) and (text := _text(node.value, texts)) is not None:  # type: ignore[attr-defined]
            texts[node.targets[0].id] = text  # type: ignore[attr-defined]
    return texts


def _text(node: ast.expr, constants: dict[str, Text]) -> Text | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        return node.value
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.JoinedStr):
        parts = [_text(part.value if isinstance(part, ast.FormattedValue) else part, constants) for part in node.values]
        return None if any(not isinstance(part, str) for part in parts) else "".join(map(str, parts))
    return None


def _flags(node: ast.Call) -> int:
    given = [*node.args[1:], *(keyword.value for keyword in node.keywords if keyword.arg == "flags")]
    named = {inner.attr for argument in given for inner in ast.walk(argument) if isinstance(inner, ast.Attribute)}
    flags = 0
    for name in named & set(FLAGS):
        flags |= FLAGS[name]
    return flags


# Making one slow


def hostile_inputs(text: Text, size: int) -> Iterator[Text]:
    """Texts of about this size that make a careless pattern look at the same characters again and again: what the
    pattern itself is made of, repeated, with a start that it likes and an end that it does not."""
    plain = text.decode("latin-1") if isinstance(text, bytes) else text
    for start, pump, end in product(_starts(plain), _pumps(plain), ("", "\x01")):
        hostile = start + pump * (size // len(pump)) + end
        yield hostile.encode("latin-1", "replace") if isinstance(text, bytes) else hostile


def _letters(pattern: str) -> list[str]:
    """Characters that a pattern tells apart: those it is written with, and one of each class it names."""
    classes = {"a": "a-z", "A": "A-Z", "0": "0-9", "d": r"\d", " ": r"\s", "\n": r"\n", "\t": r"\t", "w": r"\w"}
    letters = {letter for letter, sign in classes.items() if sign in pattern}
    letters |= {letter for letter in pattern if not letter.isalnum() and letter.isascii() and letter.isprintable()}
    return sorted((letters | {"a", " ", "0"}) - {"^", "|", "+"})


def _pumps(pattern: str) -> list[str]:
    letters = _letters(pattern)
    literal = re.findall(r"[A-Za-z]{3,}", pattern)
    pairs = [one + other for one in letters for other in letters if one != other] if len(letters) <= 9 else []
    return [*letters, *pairs, '\\"', "\r\n", *literal[:3], *(f"{word} " for word in literal[:2])]


def _starts(pattern: str) -> list[str]:
    """What leads into a pattern: nothing, its first words, and the signs that such things begin with."""
    words = re.findall(r"[A-Za-z]{3,}", pattern)[:1]
    signs = [sign for sign in ('"', "'", "# ", "//", "${") if sign[0] in pattern]
    return ["", "a", *signs, *words, *(f"{word} " for word in words), *(f"{word}:" for word in words)]


def seconds_of(call: Callable[[Text], object], text: Text, tries: int = 1) -> float:
    """The least time that a call takes of a processor: how busy the machine is with others does not count."""
    least = float("inf")
    for _ in range(tries):
        begun = time.thread_time()
        call(text)
        least = min(least, time.thread_time() - begun)
    return least
