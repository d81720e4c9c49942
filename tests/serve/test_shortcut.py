"""The shortest way of a request gives the answers of the application, however the request arrives."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from urllib.parse import urlencode

import httpx
import pytest
from serving import TEXTS, in_thread
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ramify.serve import Settings, create_app
from ramify.serve.known_heads import KnownHeads
from ramify.serve.shortcut import Shortcut
from ramify.serve.suggestions import SuggestJob

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def served(model_path):
    settings = Settings(threads=2, reload_every=0, max_k=50, token="secret")
    app = create_app({"model": model_path}, settings)
    with in_thread(app, settings) as address:
        yield app, int(address.rpartition(":")[2])


@pytest.fixture
def taken(monkeypatch):
    """What `Shortcut.answer` was asked for, and whether it took it."""
    found = []
    answer = Shortcut.answer

    def counted(self, scope, body, respond):
        found.append(answer(self, scope, body, respond))
        return found[-1]

    monkeypatch.setattr(Shortcut, "answer", counted)
    return found


def request(body, path="/v1/suggest", kind=JSON, token="secret", more=""):
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\nauthorization: Bearer {token}\r\n{more}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def suggest(**fields):
    return json.dumps({"input": TEXTS[0], **fields}).encode()


class Client:
    """A connection; reads one answer after the other."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.file = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data)

    def read(self):
        """Status, headers and body of the next answer."""
        status = int(self.file.readline().split()[1])
        headers = {}
        while line := self.file.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name] = value
        return status, headers, self.file.read(int(headers["content-length"]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()


def without_date(headers):
    return {name: value for name, value in headers.items() if name != "date"}


BODIES = {
    "a text": (suggest(), 200),
    "options": (suggest(k=2, threshold=-1e9), 200),
    "a filter": (suggest(allow=["http://ex.org/whale"]), 200),
    "no JSON": (b"{", 400),
    "too many labels": (suggest(k=51), 422),
    "no such model": (suggest(model="other"), 404),
    "large": (suggest(input=TEXTS[0] * 5000), 200),
}


@pytest.mark.parametrize("name", BODIES)
def test_the_answer_is_that_of_the_application(served, taken, name):
    body, expected = BODIES[name]
    _, port = served
    with Client(port) as client:
        client.send(request(body))
        answer = client.read()
        assert len(taken) == (1 if len(body) < 100_000 else len(taken))
        client.send(request(body, more="x-forwarded-for: 10.0.0.1\r\n"))  # not for the shortcut
        assert len(taken) <= 1
        other = client.read()
        assert (answer[0], other[0]) == (expected, expected)
        assert answer[2] == other[2]
        assert without_date(answer[1]) == without_date(other[1])
        assert "date" in answer[1]


def test_a_request_in_pieces_is_left_to_the_application(served, taken):
    _, port = served
    whole = request(suggest())
    with Client(port) as client:
        client.send(whole)
        expected = client.read()[2]
        assert taken == [True]
        for cut in (5, len(whole) - len(suggest()), len(whole) - 3):
            client.send(whole[:cut])
            time.sleep(0.05)
            client.send(whole[cut:])
            status, _, body = client.read()
            assert (status, body) == (200, expected)
    # A request whose headers came in pieces has its body in one.
    assert taken == [True, True]


def test_pipelined_requests_are_answered_in_order(served):
    _, port = served
    requests = [request(suggest(k=1 + i % 3)) for i in range(6)]
    requests[3] = request(b"{")  # refused at once
    with Client(port) as client:
        client.send(b"".join(requests))
        answers = [client.read() for _ in requests]
    assert [status for status, _, _ in answers] == [200, 200, 200, 400, 200, 200]
    counts = [len(json.loads(body)["results"][0]["labels"]) for status, _, body in answers if status == 200]
    assert counts == [1, 2, 3, 2, 3]


def test_the_token_is_needed(served, taken):
    _, port = served
    with Client(port) as client:
        client.send(request(suggest(), token="wrong"))
        assert client.read()[0] == 401
        client.send(request(suggest()))
        assert client.read()[0] == 200
    assert taken == [True, True]


def test_connections_are_closed_where_the_client_wants_it(served, taken):
    _, port = served
    with Client(port) as client:
        client.send(request(suggest(), more="connection: close\r\n"))
        status, headers, _ = client.read()
        assert (status, headers["connection"]) == (200, "close")
        assert client.file.read() == b""
    assert taken == [True]


def test_idle_connections_are_closed(model_path):
    settings = Settings(threads=1, reload_every=0)
    app = create_app(model_path, settings)
    with in_thread(app, settings, timeout_keep_alive=1) as address, Client(int(address.rpartition(":")[2])) as client:
        for pause in (0.6, 0.6, 0):  # each answer begins the time anew
            client.send(request(suggest()))
            assert client.read()[0] == 200
            time.sleep(pause)
        start = time.monotonic()
        assert client.file.read() == b""
        assert time.monotonic() - start > 0.5


def test_a_client_that_waits_for_leave_to_send_gets_it(served):
    _, port = served
    body = suggest()
    whole = request(body, more="expect: 100-continue\r\n")
    with Client(port) as client:
        client.send(whole[: -len(body)])
        assert client.file.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert client.file.readline() == b"\r\n"
        client.send(body)
        assert client.read()[0] == 200


def test_forms_of_annif(served, taken):
    _, port = served
    form = urlencode({"text": TEXTS[0], "limit": 2}).encode()
    with Client(port) as client:
        client.send(request(form, "/v1/projects/model/suggest", FORM))
        status, _, body = client.read()
        assert (status, len(json.loads(body)["results"])) == (200, 2)
        client.send(request(b"limit=2", "/v1/projects/model/suggest", FORM))
        assert client.read()[0] == 400
    assert taken == [True, True]


def test_answers_are_counted(served):
    app, port = served

    def counted(status):
        text = app.state.service.metrics.render(app.state.service.models, app.state.service.work)
        found = re.search(rf'ramify_requests_total{{route="/v1/suggest",status="{status}"}} (\d+)', text)
        return int(found[1]) if found else 0

    before = counted(200), counted(400)
    with Client(port) as client:
        client.send(request(suggest()))
        client.read()
        client.send(request(b"{"))
        client.read()
    assert (counted(200), counted(400)) == (before[0] + 1, before[1] + 1)


def test_other_origins_need_the_application(model_path, taken):
    settings = Settings(threads=1, reload_every=0, cors=("https://example.org",))
    with in_thread(create_app(model_path, settings), settings) as address:
        headers = {"origin": "https://example.org"}
        answer = httpx.post(f"{address}/v1/suggest", json={"input": TEXTS[0]}, headers=headers)
        assert answer.headers["access-control-allow-origin"] == "https://example.org"
    assert taken == []


def test_requests_of_clients_that_have_left_are_not_read_where_many_wait(served, monkeypatch):
    app, port = served
    monkeypatch.setattr("ramify.serve.protocol._MANY", 0)
    ranked = app.state.service.work.n_ranked
    for _ in range(20):
        with Client(port) as client:
            client.send(request(suggest()))
    with Client(port) as client:
        client.send(request(suggest()))
        assert client.read()[0] == 200  # this one waits
    assert ranked < app.state.service.work.n_ranked <= ranked + 21


# ---- heads that are known ----


@pytest.fixture
def parsed(monkeypatch):
    """What uvicorn's parser was given to read."""
    found = []
    read = HttpToolsProtocol.data_received

    def counted(self, data):
        found.append(data)
        read(self, data)

    monkeypatch.setattr(HttpToolsProtocol, "data_received", counted)
    return found


def test_the_same_head_is_parsed_once_for_all_connections(served, parsed):
    _, port = served
    whole = request(suggest(), more="x-head: parsed once\r\n")
    with Client(port) as first, Client(port) as second:
        first.send(whole)
        expected = first.read()
        for client in (second, first, second):
            client.send(whole)
            answer = client.read()
            assert (answer[0], answer[2]) == (200, expected[2])
            assert without_date(answer[1]) == without_date(expected[1])
        assert parsed == [whole]
        other = whole.replace(b"whale", b"house")  # as long, so that the head is the same
        first.send(other)
        assert first.read()[2] != expected[2]
        first.send(whole.replace(b"whale", b'wh"le'))  # no JSON
        assert first.read()[0] == 400
        assert parsed == [whole]
        first.send(whole.replace(b"secret", b"Secret"))
        assert first.read()[0] == 401


@pytest.mark.parametrize("more", ["connection: close\r\n", "expect: 100-continue\r\n", "upgrade: x\r\n"])
def test_heads_that_ask_for_more_than_an_answer_are_parsed_each_time(served, parsed, more):
    _, port = served
    whole = request(suggest(k=3), more=more)
    for i in range(3):
        with Client(port) as client:
            client.send(whole)
            assert client.file.readline().split()[1] in (b"100", b"200")
        assert len(parsed) == i + 1


def test_bodies_in_chunks_and_old_versions_are_parsed_each_time(served, parsed):
    _, port = served
    body = suggest(k=4)
    head = b"POST /v1/suggest HTTP/1.%d\r\nhost: x\r\ncontent-type: application/json\r\n"
    head += b"authorization: Bearer secret\r\n"
    chunked = head % 1 + b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    old = head % 0 + b"content-length: %d\r\n\r\n%s" % (len(body), body)
    for whole in (chunked, chunked, old, old):
        with Client(port) as client:
            client.send(whole)
            assert client.read()[0] == 200
    assert parsed == [chunked, chunked, old, old]


def test_what_follows_a_known_head_is_read_in_order(served):
    """Further requests while the first one is answered: whole, in pieces, many at once, and no HTTP at all."""
    _, port = served
    requests = [request(suggest(k=1 + i % 3), more="x-head: in order\r\n") for i in range(3)]
    with Client(port) as client:
        for whole in requests:
            client.send(whole)
            assert client.read()[0] == 200
        for cut in (0, 10, len(requests[1]) - 4):
            client.send(requests[0])  # known, and in the queue
            client.send(requests[1][:cut])
            time.sleep(0.02)
            client.send(requests[1][cut:] + requests[2] + requests[0])
            counts = [len(json.loads(client.read()[2])["results"][0]["labels"]) for _ in range(4)]
            assert counts == [1, 2, 3, 1]
        client.send(requests[0])
        client.send(b"no HTTP\r\n\r\n")
        assert client.read()[0] == 200
        assert client.file.readline().split()[1] == b"400"


@pytest.fixture
def halted(monkeypatch):
    """While the event is not set, the workers wait."""
    event = threading.Event()
    event.set()
    rank = SuggestJob.rank

    def waiting(self, documents):
        assert event.wait(30)
        return rank(self, documents)

    monkeypatch.setattr(SuggestJob, "rank", waiting)
    return event


def test_an_answer_to_a_known_head_is_sent_before_the_end(model_path, halted):
    settings = Settings(threads=1, reload_every=0, token="secret")
    with in_thread(create_app(model_path, settings), settings) as address:
        client = Client(int(address.rpartition(":")[2]))
        client.send(request(suggest()))
        expected = client.read()
        halted.clear()
        client.send(request(suggest()))
        time.sleep(0.1)
        threading.Timer(0.3, halted.set).start()
    with client:  # the server has ended
        status, headers, body = client.read()
        assert (status, headers["connection"], body) == (200, "close", expected[2])
        assert client.file.read() == b""


def test_a_client_that_goes_on_asking_is_told_of_the_end(model_path):
    """An open connection ends with an answer that says so: a request that is on its way is not lost."""
    settings = Settings(threads=1, reload_every=0, token="secret")
    wholes = (request(suggest()), request(suggest(explain=1)), b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
    last: dict[int, dict[str, str]] = {}

    def go_on(i, client):
        with client:
            while i not in last:
                client.send(wholes[i])
                status, headers, _ = client.read()
                assert status == 200
                if headers.get("connection") == "close":
                    last[i] = headers

    with in_thread(create_app(model_path, settings), settings) as address:
        port = int(address.rpartition(":")[2])
        threads = [threading.Thread(target=go_on, args=(i, Client(port))) for i in range(len(wholes))]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
    for thread in threads:
        thread.join(30)
    assert sorted(last) == [0, 1, 2]


def test_a_client_that_leaves_after_a_known_head_takes_its_text_along(model_path, halted):
    settings = Settings(threads=1, reload_every=0, token="secret")
    app = create_app(model_path, settings)
    work, counts = app.state.service.work, app.state.service.metrics._requests
    with in_thread(app, settings) as address:
        port = int(address.rpartition(":")[2])
        with Client(port) as client:
            client.send(request(suggest()))
            client.read()
            halted.clear()
            client.send(request(suggest()))
            while not (work.texts and work._n_free == 0):  # it occupies the worker
                time.sleep(0.05)
            with Client(port) as other:
                other.send(request(suggest()))
                while work.texts < 2:
                    time.sleep(0.01)
            while not counts.get(("/v1/suggest", 499)):
                time.sleep(0.01)
            halted.set()
            assert client.read()[0] == 200
        assert work.n_ranked == 2


def test_only_so_many_heads_are_kept(monkeypatch):
    monkeypatch.setattr("ramify.serve.known_heads._MAX_HEADS", 3)
    heads = KnownHeads()
    body = b"12345"
    headers = [(b"content-length", b"5")]
    datas = [b"POST /%d HTTP/1.1\r\ncontent-length: 5\r\n\r\n12345" % i for i in range(5)]
    for data in datas:
        heads.add(data, {"headers": headers, "path": data[5:7].decode()}, body)
    assert [heads.find(data) is not None for data in datas] == [False, False, True, True, True]
    assert heads.find(datas[4]) == ({"headers": headers, "path": "/4"}, body)
    assert heads.find(datas[4] + b"6") is None
    assert heads.find(datas[4][:-1]) is None
    assert heads.find(b"") is None
    long = b"POST / HTTP/1.1\r\nx: " + b"y" * 2000 + b"\r\ncontent-length: 5\r\n\r\n12345"
    heads.add(long, {"headers": headers}, body)
    assert heads.find(long) is None
    # The length in the head decides where the next request begins.
    for wrong in ([(b"content-length", b"+5")], [], headers * 2, [*headers, (b"transfer-encoding", b"chunked")]):
        heads.add(b"GET / HTTP/1.1\r\n\r\n12345", {"headers": wrong}, body)
    assert heads.find(b"GET / HTTP/1.1\r\n\r\n12345") is None
