"""The server under the service: silent and slow clients, large requests, and how it stops."""

import json
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from neuralsurv.cli.commands import serve
from neuralsurv.service import application, server
from neuralsurv.service.application import create_app
from neuralsurv.service.middleware import STOPPING
from neuralsurv.service.model_watch import ModelWatch
from neuralsurv.service.request_parsing import Limits
from neuralsurv.service.server import Connection, RateLimitedWarning, Server, most_connections
from service.own_process import outcome, running, stop
from service.small_service import PERSON, write

BODY = {"people": [PERSON], "times": [1.0]}
POST = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("server"))


@contextmanager
def serving_in_a_thread(path, **limits):
    """The server in a thread of this process, so that a test can look into it."""
    found = Server(create_app(ModelWatch(path), limits=Limits(**limits)))
    with serve._listening("127.0.0.1", 0) as place:
        port = place.getsockname()[1]
        thread = threading.Thread(target=found.run, args=([place],))
        thread.start()
        until(lambda: found.started)
        try:
            yield found, port
        finally:
            found.should_exit = True
            thread.join(60)


def until(true, seconds=60.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.01)


def silent(port, text=b""):
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    client.sendall(text)
    return client


def rest(client):
    """What a connection still gives until it is closed."""
    found = b""
    try:
        while part := client.recv(2**16):
            found += part
    except ConnectionResetError:
        pass
    return found


class TestSilence:
    @pytest.mark.parametrize(
        "text",
        [b"", b"GET /health HT", POST, POST + b"Content-Length: 50\r\n\r\n{"],
        ids=["nothing", "line", "head", "body"],
    )
    def test_a_client_that_keeps_the_service_waiting_is_sent_away(self, path, monkeypatch, text):
        monkeypatch.setattr(server, "_IDLE_LIMIT", 0.2)
        with serving_in_a_thread(path) as (_, port), silent(port, text) as client:
            assert rest(client) == b""

    def test_a_slow_body_is_answered_and_then_not_waited_for(self, path, monkeypatch):
        monkeypatch.setattr(server, "_IDLE_LIMIT", 0.2)
        with (
            serving_in_a_thread(path, body_seconds=0.05) as (found, port),
            silent(port, POST + b"Content-Length: 50\r\n\r\n{") as client,
        ):
            assert rest(client).startswith(b"HTTP/1.1 408 ")
            until(lambda: not found.server_state.connections)

    def test_one_that_never_reads_its_answer(self, path, monkeypatch):
        monkeypatch.setattr(server, "_IDLE_LIMIT", 0.2)
        monkeypatch.setattr(application, "answer", lambda _: [{"much": "x" * 2**24}])
        body = json.dumps(BODY).encode()
        with (
            serving_in_a_thread(path) as (found, port),
            silent(port, POST + b"Content-Length: %d\r\n\r\n" % len(body) + body) as client,
        ):
            until(lambda: found.server_state.total_requests == 1)
            until(lambda: not found.server_state.connections)
            assert 0 < len(rest(client)) < 2**24

    def test_one_that_reads_slowly_is_waited_for(self):
        closed, clocks = [], []
        unsent = iter([100, 60, 10, 10])
        connection = Connection.__new__(Connection)
        connection.transport = SimpleNamespace(
            get_write_buffer_size=lambda: next(unsent), abort=lambda: closed.append(len(clocks))
        )
        connection.loop = SimpleNamespace(call_later=lambda *_: clocks.append(1))
        connection.timeout_keep_alive = 1
        for _ in range(4):
            connection._late()
        # Three times something was read; then nothing more was.
        assert closed == [3]

    def test_a_connection_is_used_again_and_again(self, path):
        with serving_in_a_thread(path) as (found, port), silent(port) as client:
            for _ in range(3):
                client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                answer = b""
                while not answer.endswith(b"}"):
                    answer += client.recv(2**16)
                assert answer.startswith(b"HTTP/1.1 200 ")
            until(lambda: found.server_state.total_requests == 3)


class TestCrowd:
    def test_who_has_waited_longest_makes_room(self, path, monkeypatch, caplog):
        monkeypatch.setattr(server, "most_connections", lambda: 3)
        monkeypatch.setattr(server, "_TOO_MANY", RateLimitedWarning())
        go_on = threading.Event()
        monkeypatch.setattr(application, "answer", lambda _: go_on.wait(60) and [{}])
        body = json.dumps(BODY).encode()
        with serving_in_a_thread(path) as (found, port):
            # The first is being worked for, so it stays.
            clients = [silent(port, POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)]
            until(lambda: found._app.running == 1)
            for _ in range(5):
                clients.append(silent(port))
                until(lambda: any(one.client == clients[-1].getsockname() for one in found.server_state.connections))
            assert [rest(client) for client in clients[1:4]] == [b""] * 3
            until(lambda: len(found.server_state.connections) == 3)
            left = {one.client for one in found.server_state.connections}
            assert left == {clients[k].getsockname() for k in (0, 4, 5)}
            go_on.set()
            assert clients[0].recv(2**16).startswith(b"HTTP/1.1 200 ")
            for client in clients:
                client.close()
        assert len([line for line in caplog.messages if "those that wait longest are closed" in line]) == 1

    @pytest.mark.parametrize(("files", "most"), [(200, 104), (100, 16), (2**20, 512), (-1, 512)])
    def test_fewer_than_the_system_allows_files(self, monkeypatch, files, most):
        monkeypatch.setattr("resource.getrlimit", lambda _: (files, files))
        assert most_connections() == most

    def test_silent_clients_do_not_stop_the_service(self, path):
        with running("serve", path, "--port", 0, files=200) as (process, said):
            port = int(said["url"].rpartition(":")[2])
            clients = [silent(port) for _ in range(250)]
            for _ in range(3):
                assert outcome(f"{said['url']}/health")[0] == 200
            for client in clients:
                client.close()
            _, log = stop(process)
        assert len(log.splitlines()) < 20, log[:2000]

    def test_no_more_files_is_said_now_and_then(self, caplog, monkeypatch):
        monkeypatch.setattr(server, "_NO_FILES", RateLimitedWarning())
        others = []
        loop = SimpleNamespace(default_exception_handler=others.append)
        context = {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many open files")}
        for _ in range(100):
            server._report(loop, context)
        assert [record.message for record in caplog.records] == [
            "no new connection can be taken ([Errno 24] Too many open files); trying again every second"
        ]
        server._report(loop, {"message": "another"})
        assert others == [{"message": "another"}]


def resident(pid, key):
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(next(line for line in text.splitlines() if line.startswith(key)).split()[1]) / 1e3


MEGABYTE = 2**20 - 100
LARGE = {
    "people": '{"people":[' + ",".join(["1"] * (MEGABYTE // 2)) + "]}",
    "covariates": '{"people":[{' + ",".join(f'"{k:x}":[]' for k in range(MEGABYTE // 11)) + "}]}",
    "fields": "{" + ",".join(f'"{k:x}":1' for k in range(MEGABYTE // 10)) + "}",
}


class TestLargeRequests:
    def test_memory_is_bounded_and_health_answers(self, path):
        with running("serve", path, "--port", 0) as (process, said), ThreadPoolExecutor(12) as pool:
            before = resident(process.pid, "VmRSS")
            for text in LARGE.values():
                asked = [pool.submit(outcome, f"{said['url']}/predict", text.encode()) for _ in range(12)]
                while not all(one.done() for one in asked):
                    assert outcome(f"{said['url']}/health")[0] == 200
                for one in asked:
                    status, kind, content = one.result()
                    assert (status, kind) == (422, "application/problem+json")
                    assert len(content["detail"]) < 1000
            grown = resident(process.pid, "VmHWM") - before
        # A request for each of up to four workers is unpacked at a time; it was 4 GB.
        assert grown < 400

    def test_health_answers_while_requests_are_read(self, path, monkeypatch):
        go_on, read = threading.Event(), application.read_request
        monkeypatch.setattr(application, "read_request", lambda *request: go_on.wait(60) and read(*request))
        with serving_in_a_thread(path) as (found, port), ThreadPoolExecutor(12) as pool:
            address = f"http://127.0.0.1:{port}"
            asked = [pool.submit(outcome, f"{address}/predict", BODY) for _ in range(12)]
            until(lambda: found._app.running == 12)
            assert outcome(f"{address}/health")[0] == 200
            assert not any(one.done() for one in asked)
            go_on.set()
            assert [one.result()[0] for one in asked] == [200] * 12


# A prediction that takes a while, and looks at the clock; `begun` is a file that says that it has begun.
SLOW = """
import pathlib, sys, time
from neuralsurv.service import application, server
server.GRACE = {grace}
def slow(questions, real=application.answer):
    pathlib.Path({begun!r}).touch()
    for _ in range({steps}):
        time.sleep(0.05)
        questions[0].deadline.check()
    return real(questions)
application.answer = slow
"""


class TestStopping:
    def test_what_runs_is_finished_and_what_is_new_is_refused(self, path, tmp_path):
        first = SLOW.format(grace=60.0, steps=40, begun=str(tmp_path / "begun"))
        with running("serve", path, "--port", 0, first=first) as (process, said), ThreadPoolExecutor(1) as pool:
            runs = pool.submit(outcome, f"{said['url']}/predict", BODY)
            until((tmp_path / "begun").exists)
            process.terminate()
            while (new := outcome(f"{said['url']}/health"))[0] == 200:
                assert not runs.done()
            status, kind, content = new
            assert (status, kind, content["detail"]) == (503, "application/problem+json", STOPPING)
            status, _, content = runs.result()
            assert (status, len(content["people"])) == (200, 1)
            process.communicate(timeout=60)
            assert "Traceback" not in process.log.read_text()

    def test_what_takes_too_long_is_told_so(self, path, tmp_path):
        first = SLOW.format(grace=0.2, steps=10_000, begun=str(tmp_path / "begun"))
        with running("serve", path, "--port", 0, first=first) as (process, said), ThreadPoolExecutor(1) as pool:
            runs = pool.submit(outcome, f"{said['url']}/predict", BODY)
            until((tmp_path / "begun").exists)
            _, log = stop(process)
            status, kind, content = runs.result()
            assert (status, kind, content["detail"]) == (503, "application/problem+json", STOPPING)
            assert "Traceback" not in log


class TestClientsThatLeave:
    def test_their_work_is_given_up(self, path, monkeypatch, caplog):
        caplog.set_level(logging.INFO, logger="neuralsurv.service")
        begun, ended = threading.Event(), threading.Event()

        def endless(questions):
            begun.set()
            try:
                while True:
                    time.sleep(0.01)
                    questions[0].deadline.check()
            finally:
                ended.set()

        monkeypatch.setattr(application, "answer", endless)
        body = json.dumps(BODY).encode()
        with serving_in_a_thread(path) as (found, port):
            with silent(port, POST + b"Content-Length: %d\r\n\r\n" % len(body) + body):
                assert begun.wait(60)
            # Long before its time is over.
            assert ended.wait(20)
            until(lambda: not found._app.running)
        assert [line.split()[:3] for line in caplog.messages] == [["POST", "/predict", "499"]]

    def test_work_that_has_not_begun_never_does(self, path, monkeypatch):
        begun, go_on = [], threading.Event()
        monkeypatch.setattr(application, "answer", lambda *_: begun.append(1) or (go_on.wait(60) and [{}]))
        body = json.dumps(BODY).encode()
        with serving_in_a_thread(path) as (found, port):
            clients = [silent(port, POST + b"Content-Length: %d\r\n\r\n" % len(body) + body) for _ in range(3)]
            until(lambda: found._app.running == 3)
            for client in clients[1:]:
                client.close()
            until(lambda: found._app.running == 1)
            go_on.set()
            assert clients[0].recv(2**16).startswith(b"HTTP/1.1 200 ")
            clients[0].close()
        assert begun == [1]
