"""Table C of bad inputs, rows 1 to 18: whatever is not proven gets a 4xx and leaves nothing behind."""

from __future__ import annotations

import gzip
import json
import time

import pytest
import requests

from tests.producer.bridge_process import BridgeProcess, event, signed
from tests.producer.raw_http import connected, exchange, read_answer, request, send_all
from tests.waiting import wait_until

BODY = event("evt_bad")
ZEROS = "0" * 64


def refused(answer: requests.Response, status: int, code: str) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == code
    assert error["message"]
    assert error["hint"]


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("", "missing_signature"),
        ("v1=00", "malformed_signature"),
        ("t=abc,v1=" + ZEROS, "malformed_signature"),
        ("t=,v1=" + ZEROS, "malformed_signature"),
        ("t=" + "9" * 3_000 + ",v1=" + ZEROS, "malformed_signature"),
        ("t=" + "9" * 5_000 + ",v1=" + ZEROS, "malformed_signature"),
        ("t=1,v1=" + "é" * 64, "malformed_signature"),
        ("t=1" + (",v1=" + ZEROS) * 16, "malformed_signature"),
        ("t=1" + ",v1=0" * 5_000, "malformed_signature"),
        ("t= 1,v1=" + ZEROS, "malformed_signature"),
        ("t=1,t=1,v1=" + ZEROS, "malformed_signature"),
        ("t=1,v1=ab", "malformed_signature"),
        ("t=1,v1=" + ZEROS, "wrong_signature"),
    ],
)
def test_rows_1_to_6_and_11_headers(bridge: BridgeProcess, header: str, code: str) -> None:
    headers = {"Stripe-Signature": header.encode("utf-8")}
    answer = requests.post(bridge.url + "/webhooks/stripe", data=BODY, headers=headers, timeout=10)
    refused(answer, 400, code)


def test_row_1_no_header_with_and_without_a_body(bridge: BridgeProcess) -> None:
    refused(requests.post(bridge.url + "/webhooks/stripe", data=b"{}", timeout=10), 400, "missing_signature")
    refused(requests.post(bridge.url + "/webhooks/stripe", timeout=10), 400, "missing_signature")


def test_row_4_a_right_v0_is_not_enough(bridge: BridgeProcess) -> None:
    refused(bridge.post(BODY, header=signed(BODY).replace("v1=", "v0=")), 400, "malformed_signature")


def test_row_5_two_signatures_one_right(bridge: BridgeProcess) -> None:
    moment, _, good = signed(BODY).partition(",")
    for header in (f"{moment},v1={ZEROS},{good}", f"{moment},{good},v1={ZEROS}"):
        assert bridge.post(BODY, header=header).status_code == 200


def test_row_6_ten_thousand_signatures_are_too_much_header_or_too_many_items(bridge: BridgeProcess) -> None:
    header = "t=1" + (",v1=" + ZEROS) * 10_000
    answer = exchange(bridge.port, request(f"Stripe-Signature: {header}", body=BODY))
    assert (answer.status, answer.code) == (431, "headers_too_large")


@pytest.mark.parametrize(
    ("seconds", "code"),
    [(-302, "stale_timestamp"), (303, "future_timestamp"), (3_155_760_000, "future_timestamp")],
)
def test_row_7_times_outside_the_window(bridge: BridgeProcess, seconds: int, code: str) -> None:
    refused(bridge.post(BODY, header=signed(BODY, timestamp=int(time.time()) + seconds)), 400, code)


@pytest.mark.parametrize("seconds", [-297, 297])
def test_row_7_times_inside_the_window(bridge: BridgeProcess, seconds: int) -> None:
    assert bridge.post(BODY, header=signed(BODY, timestamp=int(time.time()) + seconds)).status_code == 200


def test_row_10_a_hop_that_writes_the_json_anew(bridge: BridgeProcess) -> None:
    document = json.loads(BODY)
    document["data"]["object"]["description"] = "Café ☕"
    body = json.dumps(document, indent=2, ensure_ascii=False).encode()
    header = signed(body)
    assert bridge.post(body, header=header).status_code == 200
    changed = [
        json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(),
        json.dumps(document, ensure_ascii=False, indent=2, sort_keys=True).encode(),
        json.dumps(document, indent=2).encode(),
        body + b"\n",
        body[:-1] + bytes([body[-1] ^ 1]),
    ]
    before = len(bridge.all_values())
    for other in changed:
        refused(bridge.post(other, header=header), 400, "wrong_signature")
    assert len(bridge.all_values()) == before


def test_row_11_the_header_twice(bridge: BridgeProcess) -> None:
    line = f"Stripe-Signature: {signed(BODY)}"
    answer = exchange(bridge.port, request(line, line, body=BODY))
    assert (answer.status, answer.code) == (400, "malformed_signature")


@pytest.mark.parametrize("body", [b"\xff\xfe\xfd", '{"id":"evt_1"}'.encode("utf-16"), b"\xef\xbb\xbf{}"])
def test_row_13_bytes_that_are_not_utf_8(bridge: BridgeProcess, body: bytes) -> None:
    refused(bridge.post(body, header=signed(BODY)), 400, "wrong_signature")
    assert bridge.stored(bridge.post(body)).value == body


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, gzip", "zstd", "x"])
def test_row_14_a_compressed_body_is_not_inflated(bridge: BridgeProcess, encoding: str) -> None:
    body = gzip.compress(bytes(10_000_000))
    headers = {"Stripe-Signature": signed(body), "Content-Encoding": encoding}
    answer = requests.post(bridge.url + "/webhooks/stripe", data=body, headers=headers, timeout=10)
    refused(answer, 415, "content_encoding")


def test_row_15_an_empty_body(bridge: BridgeProcess) -> None:
    refused(bridge.post(b""), 400, "empty_body")


def test_row_15_at_the_limit_and_one_above(bridge: BridgeProcess) -> None:
    fits = b"x" * 1_040_396
    assert bridge.stored(bridge.post(fits)).value == fits
    refused(bridge.post(fits + b"x"), 413, "body_too_large")


def test_row_15_too_large_by_its_announced_length_is_refused_unread(bridge: BridgeProcess) -> None:
    line = f"Stripe-Signature: {signed(b'')}"
    answer = exchange(bridge.port, request(line, length=10**15))
    assert (answer.status, answer.code) == (413, "body_too_large")


def test_row_15_chunks_without_end(bridge: BridgeProcess) -> None:
    head = f"POST /webhooks/stripe HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nStripe-Signature: {signed(b'')}\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    answer = exchange(bridge.port, head.encode(), *[chunk] * 64)
    assert (answer.status, answer.code) == (413, "body_too_large")


def test_row_15_a_chunked_body_is_as_good(bridge: BridgeProcess) -> None:
    answer = requests.post(
        bridge.url + "/webhooks/stripe",
        data=iter([BODY[:10], BODY[10:]]),
        headers={"Stripe-Signature": signed(BODY)},
        timeout=10,
    )
    assert bridge.stored(answer).value == BODY


def test_row_15_broken_chunks(bridge: BridgeProcess) -> None:
    head = f"POST /webhooks/stripe HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nStripe-Signature: {signed(BODY)}\r\n\r\n"
    answer = exchange(bridge.port, head.encode() + b"zz\r\nhello\r\n0\r\n\r\n")
    assert answer.status == 400


def test_row_15_more_bytes_than_announced(bridge: BridgeProcess) -> None:
    line = f"Stripe-Signature: {signed(BODY)}"
    # The server itself answers: what follows the announced body is no request.
    answer = exchange(bridge.port, request(line, body=BODY, length=len(BODY) - 1))
    assert answer.status == 400


def test_rows_15_and_16_fewer_bytes_than_announced_is_a_slow_body(quick_bridge: BridgeProcess) -> None:
    line = f"Stripe-Signature: {signed(BODY)}"
    started = time.monotonic()
    answer = exchange(quick_bridge.port, request(line, body=BODY, length=len(BODY) + 1))
    assert (answer.status, answer.code) == (408, "body_timeout")
    assert time.monotonic() - started < 3.0


def test_row_16_a_trickle_is_cut_off(quick_bridge: BridgeProcess) -> None:
    line = f"Stripe-Signature: {signed(BODY)}"
    started = time.monotonic()
    with connected(quick_bridge.port) as client:
        client.sendall(request(line, length=len(BODY)))
        client.settimeout(0.1)
        for position in range(len(BODY)):
            send_all(client, [BODY[position : position + 1]])
            try:
                if client.recv(1, 2):  # MSG_PEEK
                    break
            except TimeoutError:
                continue
        client.settimeout(10)
        answer = read_answer(client)
    assert (answer.status, answer.code) == (408, "body_timeout")
    assert b"connection: close" in answer.head
    assert time.monotonic() - started < 3.0


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_row_17_other_methods(bridge: BridgeProcess, method: str) -> None:
    answer = requests.request(method, bridge.url + "/webhooks/stripe", timeout=10)
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "POST"
    if method == "HEAD":
        assert answer.content == b""
    else:
        refused(answer, 405, "method_not_allowed")


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/", "not_found"),
        ("//webhooks/stripe", "not_found"),
        ("/webhooks//stripe", "not_found"),
        ("/webhooks/../webhooks/stripe", "not_found"),
        ("/webhooks/stripe/..", "unknown_endpoint"),
        ("/webhooks/stripe/../../livez", "unknown_endpoint"),
        ("/webhooks/stripe/", "unknown_endpoint"),
        ("/webhooks/stripe/%00", "unknown_endpoint"),
        ("/Webhooks/Stripe", "not_found"),
    ],
)
def test_row_17_other_paths(bridge: BridgeProcess, target: str, code: str) -> None:
    answer = exchange(bridge.port, request(f"Stripe-Signature: {signed(BODY)}", body=BODY, target=target))
    assert (answer.status, answer.code) == (404, code)


def test_row_17_the_absolute_form_is_served_as_the_standard_wants(bridge: BridgeProcess) -> None:
    target = "http://elsewhere.example/webhooks/stripe"
    answer = exchange(bridge.port, request(f"Stripe-Signature: {signed(BODY)}", body=BODY, target=target))
    assert answer.status == 200


@pytest.mark.parametrize("target", ["*", "elsewhere.example:443"])
def test_row_17_targets_that_are_no_path(bridge: BridgeProcess, target: str) -> None:
    assert exchange(bridge.port, request(body=BODY, target=target)).status in {400, 404}


def test_row_18_large_and_many_headers(bridge: BridgeProcess) -> None:
    line = f"Stripe-Signature: {signed(BODY)}"
    for lines in (["X-Large: " + "x" * 65_536], [f"X-{n}: y" for n in range(1_000)]):
        answer = exchange(bridge.port, request(line, *lines, body=BODY))
        assert (answer.status, answer.code) == (431, "headers_too_large")


def test_row_18_length_and_chunks_together(bridge: BridgeProcess) -> None:
    line = f"Stripe-Signature: {signed(BODY)}"
    for lines in (["Transfer-Encoding: chunked"], [f"Content-Length: {len(BODY) + 1}"]):
        assert exchange(bridge.port, request(line, *lines, body=BODY)).status == 400


def test_what_is_not_http_at_all(bridge: BridgeProcess) -> None:
    before = bridge.metric("onceflow_bridge_malformed_requests_total")
    for noise in (b"\x16\x03\x01\x02\x00\x01\x00", b"hello\r\n\r\n", b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n"):
        assert exchange(bridge.port, noise).status in {0, 400}
    assert bridge.metric("onceflow_bridge_malformed_requests_total") >= before + 2
    assert "Traceback" not in bridge.log_text()


def test_an_upgrade_is_not_taken(bridge: BridgeProcess) -> None:
    lines = ["Upgrade: websocket", "Connection: Upgrade", f"Stripe-Signature: {signed(BODY)}"]
    assert exchange(bridge.port, request(*lines, body=BODY)).status in {200, 400}
    assert "Traceback" not in bridge.log_text()


def test_a_sender_that_hangs_up_is_counted_and_is_no_error(bridge: BridgeProcess) -> None:
    before = bridge.metric("onceflow_bridge_client_disconnects_total")
    errors = bridge.metric("onceflow_bridge_requests_total", status="503")
    values = len(bridge.all_values())
    with connected(bridge.port) as client:
        client.sendall(request(f"Stripe-Signature: {signed(BODY)}", body=BODY[:200], length=5_000))
    wait_until(
        lambda: bridge.metric("onceflow_bridge_client_disconnects_total") == before + 1,
        within_seconds=5,
        why="the hang-up is not counted",
    )
    assert bridge.metric("onceflow_bridge_requests_total", status="503") == errors
    assert bridge.metric("onceflow_bridge_body_bytes") == 0
    assert len(bridge.all_values()) == values
    assert "Traceback" not in bridge.log_text()


def test_a_sender_that_hangs_up_before_its_answer_has_its_event_stored(bridge: BridgeProcess) -> None:
    body = event("evt_gone")
    for _ in range(20):
        with connected(bridge.port) as client:
            client.sendall(request(f"Stripe-Signature: {signed(body)}", body=body))
    wait_until(lambda: bridge.all_values().count(body) == 20, within_seconds=10, why="events are missing")
    assert "Traceback" not in bridge.log_text()


def test_only_invalid_requests_are_limited(slow_rate: BridgeProcess) -> None:
    bad = [slow_rate.post(BODY, header="t=1,v1=" + ZEROS) for _ in range(20)]
    assert [answer.status_code for answer in bad[:5]] == [400] * 5
    assert {answer.status_code for answer in bad[6:]} == {429}
    refused(bad[-1], 429, "too_many_invalid")
    assert bad[-1].headers["Retry-After"]
    assert {slow_rate.post(event(f"evt_R{n}")).status_code for n in range(50)} == {200}
    assert slow_rate.metric("onceflow_bridge_refused_total", code="wrong_signature") == 20
