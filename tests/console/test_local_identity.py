"""The name and the secrets of a data folder stay."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from onceflow.attestation_settings import parse_keys
from onceflow.local_identity import local_identity
from onceflow_producer.endpoint_secrets import parse_secrets
from onceflow_schemas.failure import Misconfigured


def test_it_is_made_once_and_usable(tmp_path: Path) -> None:
    made = local_identity(tmp_path)
    assert local_identity(tmp_path) == made
    assert stat.S_IMODE((tmp_path / "identity.json").stat().st_mode) == 0o600
    assert parse_secrets(made.webhook_secret)[0].secret == made.webhook_secret.encode()
    assert len(parse_keys(f"local={made.attestation_secret}")[0].secret) == 32
    assert made.webhook_secret not in repr(made)
    assert made.attestation_secret not in repr(made)


def test_two_folders_differ(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    assert local_identity(tmp_path / "a") != local_identity(tmp_path / "b")


@pytest.mark.parametrize("content", ["", "{}", '{"deployment": "x"}', "[1]"])
def test_a_damaged_file_is_not_replaced(content: str, tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text(content)
    with pytest.raises(Misconfigured) as refused:
        local_identity(tmp_path)
    assert refused.value.code == "data_folder_unusable"
    assert (tmp_path / "identity.json").read_text() == content
