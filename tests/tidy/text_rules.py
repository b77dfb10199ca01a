"""Rules on words, in every text file: leftover markers, host names of package registries, words that do not belong here.

The words are written with a bar inside (`to|do`), so that this file keeps its own rules.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

from tests.tidy.offence import Offence, Rule, Source, docstrings

README_LINES_MAX = 20


def _words(*barred: str) -> str:
    return "|".join(word.replace("|", "") for word in barred)


MARKER = re.compile(rf"\b(?:{_words('TO|DO', 'FIX|ME', 'X|XX', 'HA|CK')})\b")

REGISTRY_HOST = re.compile(
    "|".join(
        re.escape(host.replace("|", ""))
        for host in (
            "py|pi.org",
            "python|hosted.org",
            "maven|.org",
            "maven.apa|che.org",
            "npm|js.org",
            "npm|js.com",
            "crates|.io",
            "proxy.go|lang.org",
            "deb.deb|ian.org",
            "docker|.io",
            "ghcr|.io",
            "quay|.io",
        )
    ),
    re.IGNORECASE,
)

FOREIGN_WORD = re.compile(
    rf"\b(?:{_words('A|I', 'L|LM', 'LL|Ms', 'C|EO', 'Cl|aude', 'Anth|ropic', 'Op|enAI', 'Chat|GPT', 'Co|pilot', 'Co|dex')})\b"
    rf"|(?i:(?<!user-)\b(?:{_words('ag|ent', 'ag|ents', 'assis|tant', 'assis|tants', 'chat|bot', 'language mo|del')})\b)"
    rf"|\b(?i:is|pull re)(?i:{_words('s|ue', 's|ues', 'q|uest', 'q|uests')})\s+#?\d"
)


def leftover_marker(source: Source) -> list[Offence]:
    """A note to do something later is lost in a file: it is done now or written where work is planned."""
    fix = "a note for later: do it now, or take the note out"
    return [source.offence(line, fix) for line, text in _prose(source) if MARKER.search(text)]


def registry_host(source: Source) -> list[Offence]:
    """No file names a package registry: which one is used is the machine's own business (mirrors, companies' proxies)."""
    fix = "the host name of a package registry: name the package only; where it comes from is a setting of the machine"
    return [source.offence(line, fix) for line, text in _lines(source) if REGISTRY_HOST.search(text)]


def foreign_word(source: Source) -> list[Offence]:
    """The project speaks of itself and its users; who or what develops it, and where work is tracked, is not its subject."""
    found = []
    for line, text in _lines(source):
        if match := FOREIGN_WORD.search(text):
            found.append(
                source.offence(line, f"{match[0]!r} does not belong here: say what the thing does, not who makes it")
            )
    return found


def long_readme(source: Source) -> list[Offence]:
    """The README of a top folder is read in a minute: promises, what it never does, files in reading order."""
    count = len(source.text.splitlines())
    if count <= README_LINES_MAX:
        return []
    fix = f"{count} lines, at most {README_LINES_MAX}: keep what it promises, what it never does, its files in order"
    return [source.offence(README_LINES_MAX + 1, fix)]


def missing_readmes(folders: list[str], files: set[str]) -> list[Offence]:
    """Every top folder has a README.md."""
    fix = "this folder has no README.md: say in 20 lines what it promises, what it never does, and its files in reading order"
    return [Offence(f"{folder}/README.md", 1, fix) for folder in folders if f"{folder}/README.md" not in files]


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    return enumerate(source.text.splitlines(), start=1)


def _prose(source: Source) -> Iterator[tuple[int, str]]:
    """Comments and docstrings of Python (its other strings are data), every line of other files."""
    if not source.is_python:
        yield from _lines(source)
        return
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    lines = source.text.splitlines()
    for node in docstrings(source.tree):
        last = node.end_lineno or node.lineno
        yield from enumerate(lines[node.lineno - 1 : last], start=node.lineno)


def _is_top_readme(source: Source) -> bool:
    return source.path.count("/") == 1 and source.path.endswith("/README.md")


RULES = (
    Rule("leftover_marker", lambda _source: True, leftover_marker),
    Rule("registry_host", lambda _source: True, registry_host),
    Rule("foreign_word", lambda _source: True, foreign_word),
    Rule("long_readme", _is_top_readme, long_readme),
)
