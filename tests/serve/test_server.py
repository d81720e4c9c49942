"""``ramify serve`` as a process of its own: replaced models, slow clients, several workers, the end."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import os
import signal
import socket
import threading
import time

import httpx
import pytest
from serving import LABELS, TEXTS, in_thread, running

import ramify
from ramify.io.store import Store
from ramify.serve import Settings, create_app
from ramify.serve.served import ModelRegistry


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server with a model that tests replace, and a token."""
    path = tmp_path_factory.mktemp("served") / "model"
    _model(1).save(path)
    with running(path, "--reload-every", "0.05", environment={"RAMIFY_SERVE_TOKEN": "secret"}) as (process, address):
        with httpx.Client(base_url=address, headers={"authorization": "Bearer secret"}) as client:
            yield client, path, address
        assert process.poll() is None


def _model(n: int) -> ramify.XRLinear:
    return ramify.XRLinear(verbose=0).fit(TEXTS, [[f"{label}/{n}" for label in row] for row in LABELS])


def _wait_for(condition):
    for _ in range(400):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within 20 seconds")


def test_a_replaced_model_is_reloaded_without_a_failed_request(served):
    client, path, address = served
    first = client.get("/v1/models").json()["models"][0]["version"]
    answers, stop = [], threading.Event()

    def ask():
        with httpx.Client(base_url=address, headers={"authorization": "Bearer secret"}) as own:
            while not stop.is_set():
                answers.append(own.post("/v1/suggest", json={"input": "whale", "k": 1}))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    _wait_for(lambda: answers)
    for n in (2, 3):
        _model(n).save(path)
        label = f"http://ex.org/whale/{n}"
        _wait_for(lambda label=label: any(label in answer.text for answer in list(answers)))
    stop.set()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} == {200}
    for answer in answers:  # each has the labels of one version
        body = answer.json()
        number = body["results"][0]["labels"][0]["label"][-1]
        assert number == "1" if body["version"] == first else number in "23"
    assert len({answer.json()["version"] for answer in answers}) == 3


def test_a_damaged_model_changes_nothing(served):
    client, path, _ = served
    before = client.get("/v1/models").json()
    manifest = path / "manifest.json"
    content = manifest.read_bytes()
    manifest.write_bytes(content[:100])
    time.sleep(0.3)
    assert client.get("/v1/models").json() == before
    assert client.post("/v1/suggest", json={"input": "whale"}).status_code == 200
    manifest.write_bytes(content)


def test_the_service_goes_on_looking_after_a_model_that_cannot_be_loaded(tmp_path, monkeypatch):
    path = tmp_path / "model"
    _model(1).save(path)
    models = ModelRegistry({"model": path})
    first = models.get(None)
    _model(2).save(path)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "__init__", lambda *_, **__: (_ for _ in ()).throw(MemoryError))
        assert models.reload() == []
    assert models.get(None) is first
    _model(3).save(path)
    assert models.reload() == ["model"]


def test_malformed_http(served):
    _, _, address = served
    host, port = address.removeprefix("http://").split(":")
    for sent in (b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nHost\r\n\r\n", b"\x16\x03\x01\x00\x00"):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(sent)
            head, _, body = connection.recv(2000).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400")
            assert b"content-type: application/problem+json" in head
            assert json.loads(body)["status"] == 400


def test_heads_have_a_limit(served):
    _, _, address = served
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx: ")
        with contextlib.suppress(OSError):  # it closes the connection meanwhile
            for _ in range(40):
                connection.sendall(b"y" * 10_000)
        assert connection.recv(1000).startswith(b"HTTP/1.1 431")


def test_a_wish_for_http_2_is_ignored(served):
    """As Java's client sends it; the parser stops at such a head, and would not read the body."""
    _, _, address = served
    host, port = address.removeprefix("http://").split(":")
    body = json.dumps({"input": "whale"}).encode()
    head = (
        "POST /v1/suggest HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nHost: x\r\nHTTP2-Settings: AAEAAEAAAA\r\n"
    )
    head += "Upgrade: h2c\r\nAuthorization: Bearer secret\r\nContent-Type: application/json\r\n"
    for _ in range(2):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")


def test_head(served):
    client, _, _ = served
    answer = client.head("/healthz")
    assert (answer.status_code, answer.content) == (200, b"")
    assert client.head("/v1/suggest").status_code == 405


def test_a_client_that_sends_all_of_a_body_that_is_too_large_reads_the_answer(served):
    client, _, address = served
    body = json.dumps({"input": "whale " * 2_000_000}).encode()
    for _ in range(2):  # over the same connection
        answer = client.post("/v1/suggest", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 413
        assert "bytes" in answer.json()["detail"]
    assert client.post("/v1/suggest", json={"input": "whale"}).status_code == 200
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30)
    headers = {"content-type": "application/json", "authorization": "Bearer secret"}
    connection.request("POST", "/v1/suggest", body, headers)  # reads after it has sent
    assert connection.getresponse().status == 413
    connection.close()


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(served):
    _, _, address = served
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        head = "POST /v1/suggest HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret\r\n"
        connection.sendall(f"{head}content-type: application/json\r\ncontent-length: 99999999\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")


DROPPED = b"POST /v1/suggest HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n"


def test_slow_clients_whose_request_was_answered_already(model_path):
    """They would keep the connection for as long as they like."""
    settings = Settings(read_timeout=0.3, max_body=1000, threads=1)
    with in_thread(create_app(model_path, settings), settings) as address:
        for head, status in ((DROPPED, b"413"), (DROPPED.replace(b"/v1/suggest", b"/nowhere"), b"404")):
            with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=10) as connection:
                connection.sendall(head)
                assert connection.recv(5000).startswith(b"HTTP/1.1 " + status)

                def is_closed(connection=connection) -> bool:
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return True
                    return False

                _wait_for(is_closed)


def test_connections_end_after_a_request_that_was_answered_before_it_had_arrived(model_path):
    settings = Settings(max_body=1000, threads=1)
    with in_thread(create_app(model_path, settings), settings, timeout_keep_alive=1) as address:
        port = int(address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(DROPPED)
            assert connection.recv(5000).startswith(b"HTTP/1.1 413")
            connection.sendall(b" " * 100_000)
            assert connection.recv(5000) == b""


def test_slow_clients(model_path):
    settings = Settings(read_timeout=0.3, threads=1)
    with in_thread(create_app(model_path, settings), settings) as address:
        port = int(address.rpartition(":")[2])
        head = b"POST /v1/suggest HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n"
        for sent in (b"", b"GET", head, head + b"\r\n", head + b"\r\n{"):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(sent)
                assert connection.recv(1000).startswith(b"HTTP/1.1 408"), sent
        with httpx.Client(base_url=address) as client:  # a quick one, again and again
            for _ in range(3):
                assert client.post("/v1/suggest", json={"input": "whale"}).status_code == 200
                time.sleep(0.2)


def test_it_finishes_what_it_has(model_path):
    """Every request that was read before the end is answered."""
    n_texts = 300
    texts = [" ".join(TEXTS) * 100] * n_texts
    with running(model_path) as (process, address), concurrent.futures.ThreadPoolExecutor(2) as pool:
        tasks = [pool.submit(httpx.post, f"{address}/v1/suggest", json={"input": texts}, timeout=60) for _ in range(2)]

        def all_are_read() -> bool:
            queued = httpx.get(f"{address}/readyz").json().get("queue", 0)
            return queued + n_texts * sum(task.done() for task in tasks) >= 2 * n_texts

        _wait_for(all_are_read)
        process.send_signal(signal.SIGTERM)
        assert [task.result().status_code for task in tasks] == [200, 200]
        assert process.wait(30) in (0, -signal.SIGTERM)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{address}/healthz")


def test_several_workers(model_path):
    with running(model_path, "--workers", "2") as (process, address):
        pids = [int(pid) for pid in _children(process.pid)]
        assert len(pids) == 2
        assert httpx.post(f"{address}/v1/suggest", json={"input": "whale"}).status_code == 200
        os.kill(pids[0], signal.SIGKILL)
        _wait_for(lambda: len(_children(process.pid)) == 2 and str(pids[0]) not in _children(process.pid))
        for _ in range(20):
            _wait_for(lambda: _is_healthy(address))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:  # noqa: PTH123
        return file.read().split()


def _is_healthy(address):
    try:
        return httpx.get(f"{address}/healthz", timeout=20).status_code == 200
    except httpx.TransportError:
        return False


def test_a_unix_socket(model_path, tmp_path):
    path = tmp_path / "socket"
    transport = httpx.HTTPTransport(uds=str(path))
    with (
        running(model_path, "--socket", path, socket_path=path),
        httpx.Client(transport=transport, base_url="http://ramify") as client,
    ):
        assert client.post("/v1/suggest", json={"input": "whale"}).status_code == 200


def test_clients_that_leave_take_their_texts_along(served):
    client, _, address = served
    host, port = address.removeprefix("http://").split(":")
    body = json.dumps({"input": TEXTS * (500 // len(TEXTS))}).encode()
    head = "POST /v1/suggest HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nContent-Type: application/json\r\n"
    request = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body

    def given_up() -> bool:
        for _ in range(8):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(request)
        return 'status="499"' in client.get("/metrics").text

    _wait_for(given_up)
    _wait_for(lambda: client.get("/readyz").json().get("queue") == 0)
    assert client.post("/v1/suggest", json={"input": "whale"}).status_code == 200
