"""Ports are chosen below the range of outgoing connections and stay with their folder."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceflow.embedded.ports import accepts_connections, choose_port, claim_ports, comes_free, is_free


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", choose_port(taken=()))) as server:
        yield server


def test_a_port_is_waited_for_as_long_as_it_may_take() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert not comes_free(port, within_seconds=0.1)
        threading.Timer(0.2, taken.close).start()
        assert comes_free(port, within_seconds=10.0)


def test_a_chosen_port_is_free_and_below_the_range_of_outgoing_connections() -> None:
    ports = {choose_port(taken=()) for _ in range(20)}
    assert len(ports) > 1
    assert all(20_000 <= port <= 32_000 for port in ports)


def test_a_port_that_is_listened_on_is_not_free(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert not is_free(port)
    assert accepts_connections(port)
    listener.close()
    assert is_free(port)
    assert not accepts_connections(port)


def test_ports_are_remembered(tmp_path: Path) -> None:
    book = tmp_path / "ports.json"
    first = claim_ports(book, ["a", "b"], grace_seconds=0)
    assert first["a"] != first["b"]
    assert claim_ports(book, ["a", "b"], grace_seconds=0) == first
    assert claim_ports(book, ["b"], grace_seconds=0) == {"b": first["b"]}


def test_a_port_that_is_taken_is_replaced_and_the_others_stay(tmp_path: Path, listener: socket.socket) -> None:
    book = tmp_path / "ports.json"
    first = claim_ports(book, ["a", "b"], grace_seconds=0)
    taken = listener.getsockname()[1]
    book.write_text(json.dumps({"a": taken, "b": first["b"]}))
    second = claim_ports(book, ["a", "b"], grace_seconds=0.1)
    assert second["a"] not in (taken, second["b"])
    assert second["b"] == first["b"]
    listener.close()
    assert claim_ports(book, ["a", "b"], grace_seconds=0) == second


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": "x"}', '{"a": 70000}', '{"a": true}'])
def test_a_damaged_port_book_is_written_anew(tmp_path: Path, text: str) -> None:
    book = tmp_path / "ports.json"
    book.write_text(text)
    claimed = claim_ports(book, ["a"], grace_seconds=0)
    assert 20_000 <= claimed["a"] <= 32_000
    assert json.loads(book.read_text()) == claimed
