"""Each rule on words convicts an offence planted for it, and lets the nearest right thing pass.

Planted words are put together from parts, so that this file keeps the rules that it tries.
"""

from __future__ import annotations

import pytest

from tests.tidy import text_rules
from tests.tidy.offence import Offence, Source


def lines(offences: list[Offence]) -> list[int]:
    """The lines of the offences."""
    return [offence.line for offence in offences]


def test_leftover_marker() -> None:
    note = "TO" + "DO"
    text = (
        f"# {note}: later\n"
        f"data = '{note} in data is data'\n"
        "def f():\n"
        f'    """Says.\n\n    {note} more.\n    """\n'
        "method = 'X' * 3\n"
    )
    assert sorted(lines(text_rules.leftover_marker(Source("a.py", text)))) == [1, 6]
    assert lines(text_rules.leftover_marker(Source("Makefile", f"all:\n\t# {note}\n"))) == [2]
    assert lines(text_rules.leftover_marker(Source("docs/a.md", "FIX" + "ME\n"))) == [1]
    assert text_rules.leftover_marker(Source(".ci/run", "mktemp of-XXX" + "XXX\n")) == []


@pytest.mark.parametrize("host", ["https://py" + "pi.org/simple", "repo1.maven" + ".org", "registry.npm" + "js.org"])
def test_registry_host(host: str) -> None:
    text = f"confluent-kafka==2.16.1\n--index-url {host}\n"
    assert lines(text_rules.registry_host(Source("requirements/dev.txt", text))) == [2]


def test_registry_host_passes_names_of_packages() -> None:
    assert text_rules.registry_host(Source("README.md", "pip install onceflow\norg.apache.kafka:kafka_2.13\n")) == []


@pytest.mark.parametrize(
    "text",
    [
        "written by an A" + "I",
        "the ag" + "ent retries",
        "an Assis" + "tant",
        "see is" + "sue 3",
        "see Is" + "sue #12",
        "Clau" + "de",
    ],
)
def test_foreign_word(text: str) -> None:
    assert lines(text_rules.foreign_word(Source("docs/a.md", f"\n{text}\n"))) == [2]


def test_foreign_word_passes_words_of_the_trade() -> None:
    text = "User-Agent: Stripe/1.0\nuser_agent\nsession.timeout.ms\na main issue of three\nFAIL, MAIL, AIX\n"
    assert text_rules.foreign_word(Source("docs/a.md", text)) == []


def test_long_readme() -> None:
    assert text_rules.long_readme(Source("schemas/README.md", "line\n" * 20)) == []
    assert lines(text_rules.long_readme(Source("schemas/README.md", "line\n" * 21))) == [21]


def test_long_readme_applies_to_top_folders_only() -> None:
    rule = next(rule for rule in text_rules.RULES if rule.name == "long_readme")
    assert rule.applies(Source("schemas/README.md", ""))
    assert not rule.applies(Source("README.md", ""))
    assert not rule.applies(Source("docs/decisions/README.md", ""))


def test_missing_readmes() -> None:
    offences = text_rules.missing_readmes(["docs", "schemas"], {"docs/README.md", "README.md"})
    assert [offence.path for offence in offences] == ["schemas/README.md"]
