"""The exchange: every way in which an answer can fail to come, and what is known then."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from onceflow_processor.operations.senders import exchange as module
from onceflow_processor.operations.senders.connection import Answer, Broken, Connection, Headers
from onceflow_processor.operations.senders.exchange import Exchange, NoAnswer, retry_after_seconds
from tests.processor.operations.senders.scripted import Entry, answer, cut, drip, hang_up, reset, scripted, silent

OK = answer(200, {"id": "re_1"}, Request_Id="req_1")


def exchange(*, total_seconds: float = 5.0, authorities: str | None = None) -> Exchange:
    return Exchange(connect_seconds=min(2.0, total_seconds), total_seconds=total_seconds, authorities=authorities)


async def one(entry: Entry, *, total_seconds: float = 5.0) -> Answer | NoAnswer:
    """The answer to one POST, or why there is none."""
    async with scripted(entry) as server:
        asker = exchange(total_seconds=total_seconds)
        try:
            return await asker.request("POST", server.url + "/v1/refunds", headers={"X": "y"}, body=b"a=b")
        except NoAnswer as error:
            return error
        finally:
            await asker.close()


def test_an_answer_comes_with_status_headers_and_body_and_the_request_was_written_as_given() -> None:
    async def scenario() -> None:
        async with scripted(OK) as server:
            asker = exchange()
            got = await asker.request(
                "POST",
                server.url + "/v1/refunds?x=1",
                headers={"Idempotency-Key": "k", "Content-Length": "999"},
                body=b"a=b",
            )
            assert (got.status, got.body) == (200, b'{"id": "re_1"}')
            assert "req_1" == got.headers["request-ID"] == got.headers.get("Request-Id")
            (request,) = server.requests
            assert (request.method, request.target, request.body) == ("POST", "/v1/refunds?x=1", "a=b")
            assert (request.headers["idempotency-key"], request.headers["content-length"]) == ("k", "3")
            assert f"127.0.0.1:{server.port}" == request.headers["host"]
            await asker.close()

    asyncio.run(scenario())


def test_a_connection_is_kept_and_used_again() -> None:
    async def scenario() -> None:
        async with scripted(OK, answer(404, "{}"), OK) as server:
            asker = exchange()
            for _ in range(3):
                await asker.request("GET", server.url + "/", headers={})
            assert server.connections == 1
            await asker.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("first", [OK + b"HTTP/1.1 200 OK\r\n", answer(200, "{}", Connection="close")])
def test_a_connection_whose_answer_did_not_end_cleanly_is_not_used_again(first: bytes) -> None:
    async def scenario() -> None:
        async with scripted(first, OK) as server:
            asker = exchange()
            await asker.request("GET", server.url + "/", headers={})
            assert (await asker.request("GET", server.url + "/", headers={})).status == 200
            assert server.connections == 2
            await asker.close()

    asyncio.run(scenario())


def test_a_connection_that_was_closed_while_nobody_used_it_is_not_used_again() -> None:
    async def scenario() -> None:
        closed = asyncio.Event()

        async def answer_and_close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(OK)
            await writer.drain()
            writer.close()
            closed.set()
            raise ConnectionResetError

        async with scripted(answer_and_close, OK) as server:
            asker = exchange()
            await asker.request("GET", server.url + "/", headers={})
            await closed.wait()
            (kept,) = next(iter(asker._idle.values()))
            await wait_until_unusable(kept, limit_seconds=5.0)
            assert (await asker.request("GET", server.url + "/", headers={})).status == 200
            assert server.connections == 2
            await asker.close()

    asyncio.run(scenario())


def test_bytes_that_nobody_asked_for_end_a_kept_connection() -> None:
    async def scenario() -> None:
        async def answer_and_more(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(OK)
            await writer.drain()
            await told.wait()
            writer.write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
            await writer.drain()

        told = asyncio.Event()
        async with scripted(answer_and_more, OK) as server:
            asker = exchange()
            await asker.request("GET", server.url + "/", headers={})
            (kept,) = next(iter(asker._idle.values()))
            told.set()
            await wait_until_unusable(kept, limit_seconds=5.0)
            assert (await asker.request("GET", server.url + "/", headers={})).status == 200
            await asker.close()

    asyncio.run(scenario())


def test_a_connection_that_is_lost_just_before_it_is_used_has_an_unknown_end() -> None:
    async def scenario() -> None:
        async with scripted(OK) as server:
            asker = exchange()
            await asker.request("GET", server.url + "/", headers={})
            (kept,) = next(iter(asker._idle.values()))
            kept.abort()
            await wait_until_unusable(kept, limit_seconds=5.0)
            with pytest.raises(Broken):
                await kept.exchange(b"x")

    asyncio.run(scenario())


async def wait_until_unusable(connection: Connection, *, limit_seconds: float) -> None:
    for _ in range(int(limit_seconds / 0.005)):
        if not connection.usable:
            return
        await asyncio.sleep(0.005)
    raise AssertionError


def test_a_connection_that_has_been_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS_MAX", 0.0)

    async def scenario() -> None:
        async with scripted(OK, OK) as server:
            asker = exchange()
            for _ in range(2):
                await asker.request("GET", server.url + "/", headers={})
            assert server.connections == 2
            await asker.close()

    asyncio.run(scenario())


def test_a_place_that_is_called_once_does_not_keep_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS_MAX", 0.0)

    async def scenario() -> None:
        async with scripted(OK) as once, scripted(OK) as other:
            asker = exchange()
            await asker.request("GET", once.url + "/", headers={})
            (kept,) = next(iter(asker._idle.values()))
            await asker.request("GET", other.url + "/", headers={})
            await wait_until_unusable(kept, limit_seconds=5.0)
            assert [place.port for place in asker._idle] == [other.port]
            await asker.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("status", "location"), [(301, "http://127.0.0.1:1/"), (302, "/v1/other"), (307, "/v1/other"), (308, "/v1/other")]
)
def test_a_redirect_is_an_answer_and_not_followed(status: int, location: str) -> None:
    got = asyncio.run(one(answer(status, "", Location=location)))
    assert isinstance(got, Answer)
    assert status == got.status


def test_an_informational_answer_only_announces_the_real_one() -> None:
    got = asyncio.run(one(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK))
    assert isinstance(got, Answer)
    assert (got.status, got.headers.get("Link")) == (200, None)


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    data = b'HTTP/1.1 200 OK\r\nRequest-Id: r\r\n\r\n{"id": "x"}'
    got = asyncio.run(one(cut(data, keep=len(data))))
    assert isinstance(got, Answer)
    assert got.body == b'{"id": "x"}'


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        pytest.param(reset, "closed", id="reset before the answer"),
        pytest.param(hang_up, "closed", id="closed before the answer"),
        pytest.param(cut(OK, keep=9), "closed", id="closed in the status line"),
        pytest.param(cut(OK, keep=30), "closed", id="closed in the head"),
        pytest.param(cut(OK, keep=len(OK) - 1), "closed", id="closed in the body"),
        pytest.param(
            cut(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}   \r\n", keep=99),
            "closed",
            id="closed in chunks",
        ),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 1", "deadline", id="only announced"),
        pytest.param(b"no http at all\r\n\r\n", "unreadable", id="no http"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "unreadable", id="no length"),
        pytest.param(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
            "unreadable",
            id="upgraded",
        ),
        pytest.param(silent, "deadline", id="silent"),
        pytest.param(drip(OK, pause_seconds=0.01), "deadline", id="dripping"),
    ],
)
def test_whatever_breaks_after_the_request_was_written_may_have_happened(entry: Entry, reason: str) -> None:
    started = time.monotonic()
    got = asyncio.run(one(entry, total_seconds=0.4))
    assert isinstance(got, NoAnswer)
    assert (reason, True) == (got.reason, got.sent)
    assert time.monotonic() - started < 2.0


def test_an_answer_beyond_the_limit_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES_MAX", 50)
    got = asyncio.run(one(answer(200, "x" * 100)))
    assert isinstance(got, NoAnswer)
    assert (got.reason, got.sent) == ("too_large", True)


def test_a_refused_connection_and_an_unknown_name_have_sent_nothing() -> None:
    async def scenario() -> None:
        async with scripted() as server:
            pass  # the port is free again
        for url in (f"http://127.0.0.1:{server.port}/", "http://nobody.invalid/", f"http://{'x' * 70}.example/"):
            with pytest.raises(NoAnswer) as failure:
                await exchange().request("POST", url, headers={}, body=b"x")
            assert (failure.value.reason, failure.value.sent) == ("unreachable", False)

    asyncio.run(scenario())


def test_a_peer_that_speaks_no_tls_has_got_nothing() -> None:
    async def scenario() -> None:
        async with scripted(OK) as server:
            with pytest.raises(NoAnswer) as failure:
                await exchange().request("POST", f"https://127.0.0.1:{server.port}/", headers={}, body=b"x")
            assert (failure.value.reason, failure.value.sent) == ("unreachable", False)

    asyncio.run(scenario())


def test_time_over_while_connecting_has_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
        with pytest.raises(NoAnswer) as failure:
            await exchange(total_seconds=0.05).request("POST", "http://127.0.0.1:9/", headers={})
        assert not failure.value.sent

    asyncio.run(scenario())


def test_a_process_that_slept_through_its_deadline_sends_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with scripted(OK) as server:
            asker = exchange(total_seconds=3.0)
            loop = asyncio.get_running_loop()
            connect, true_time = asker._connect, loop.time

            async def connect_and_sleep(place: module._Place) -> Connection:
                connection = await connect(place)
                monkeypatch.setattr(loop, "time", lambda: true_time() + 3.0)
                return connection

            monkeypatch.setattr(asker, "_connect", connect_and_sleep)
            with pytest.raises(NoAnswer) as failure:
                await asker.request("POST", server.url + "/", headers={}, body=b"x")
            assert (failure.value.reason, failure.value.sent) == ("deadline", False)
            assert server.requests == []

    asyncio.run(scenario())


def test_a_cancelled_call_breaks_its_connection_off() -> None:
    async def scenario() -> None:
        arrived, gone = asyncio.Event(), asyncio.Event()

        async def hold(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            arrived.set()
            await reader.read()
            gone.set()

        async with scripted(hold) as server:
            call = asyncio.create_task(exchange().request("POST", server.url + "/", headers={}, body=b"x"))
            await arrived.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await asyncio.wait_for(gone.wait(), 5)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("url", "headers", "body"),
    [
        ("ftp://127.0.0.1/", {}, b""),
        ("http:///nowhere", {}, b""),
        ("http://127.0.0.1:99999/", {}, b""),
        ("http://127.0.0.1/a b", {}, b""),
        ("http://127.0.0.1/\r\nX: y", {}, b""),
        ("http://127.0.0.1/", {"X": "a\r\nY: b"}, b""),
        ("http://127.0.0.1/", {"X": "snow \u2603"}, b""),
        ("http://127.0.0.1/", {}, b"x" * (module.REQUEST_BYTES_MAX + 1)),
    ],
)
def test_what_cannot_be_written_is_not_sent(url: str, headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(NoAnswer) as failure:
        asyncio.run(exchange().request("POST", url, headers=headers, body=body))
    assert (failure.value.reason, failure.value.sent) == ("unwritable", False)


def test_tls_is_spoken_and_the_certificate_is_judged(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=x -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(
        ["openssl", *made.split(), "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
        timeout=30,
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()
        writer.close()

    async def scenario() -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        url = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
        trusting = exchange(authorities=str(certificate))
        assert (await trusting.request("GET", url, headers={})).status == 200
        await trusting.close()
        with pytest.raises(NoAnswer) as failure:
            await exchange().request("GET", url, headers={})
        assert (failure.value.reason, failure.value.sent) == ("unreachable", False)
        listener.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", 3.0),
        (" 0.5 ", 0.5),
        ("999999", 3600.0),
        ("-3", None),
        ("soon", None),
        ("", None),
        ("1e9", None),
        ("Thu, 01 Jan 2026 00:00:10 GMT", 10.0),
        ("Wed, 31 Dec 2025 23:00:00 GMT", 0.0),
        ("Fri, 02 Jan 2026 00:00:00 -0000", 3600.0),
    ],
)
def test_retry_after(text: str, expected: float | None) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert expected == retry_after_seconds(Headers([(b"Retry-After", text.encode())]), now)


def test_repeated_headers_are_joined_and_names_have_no_case() -> None:
    headers = Headers([(b"A", b"1"), (b"a", b"2"), (b"B", b"3")])
    assert headers["A"] == "1, 2"
    assert list(headers) == ["a", "b"]
    assert len(headers) == 2
    assert "c" not in headers
