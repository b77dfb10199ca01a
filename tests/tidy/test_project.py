"""The whole tree keeps every tidy rule. What a rule is, and that it can fail, is shown in the tests beside this one."""

from __future__ import annotations

import pytest

from tests.tidy import form_rules, place_rules, text_rules
from tests.tidy.allowed import ALLOWED
from tests.tidy.offence import Offence, Rule
from tests.tidy.project import sources, top_folders

RULES = (*form_rules.RULES, *place_rules.RULES, *text_rules.RULES)


def fail_on(offences: list[Offence]) -> None:
    """Print one line per offence, as an editor can follow it, without the test's own source around it."""
    if offences:
        pytest.fail("\n" + "\n".join(str(offence) for offence in offences), pytrace=False)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_tree_keeps_rule(rule: Rule) -> None:
    allowed = ALLOWED.get(rule.name, {})
    offences = [offence for source in sources() if rule.applies(source) for offence in rule.check(source)]
    unneeded = sorted(set(allowed) - {offence.path for offence in offences})
    fail_on(
        [offence for offence in offences if offence.path not in allowed]
        + [
            Offence("tests/tidy/allowed.py", 1, f"remove {path} from {rule.name}: it keeps the rule")
            for path in unneeded
        ]
    )


def test_every_top_folder_has_a_readme() -> None:
    fail_on(text_rules.missing_readmes(top_folders(), {source.path for source in sources()}))


def test_rules_have_something_to_look_at() -> None:
    """A rule that applies to no file, because a folder was renamed, would pass forever."""
    idle = [rule.name for rule in RULES if not any(rule.applies(source) for source in sources())]
    assert idle == []


def test_allowances_name_rules_and_reasons() -> None:
    assert set(ALLOWED) <= {rule.name for rule in RULES}
    reasons = [reason for paths in ALLOWED.values() for reason in paths.values()]
    assert all(len(reason.split()) >= 5 for reason in reasons)
