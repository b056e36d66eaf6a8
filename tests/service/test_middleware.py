"""The outermost layer: who may ask, how much, how slowly."""

import asyncio
import json

import pytest

from neuralsurv.errors import InputError
from neuralsurv.service.application import create_app
from neuralsurv.service.middleware import Access, Middleware
from neuralsurv.service.model_watch import ModelWatch
from neuralsurv.service.prometheus_metrics import PrometheusMetrics
from neuralsurv.service.request_parsing import Limits
from service.small_service import ask, client, refused, write

TOKEN = "a-token-of-many-letters"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("gate"))


@pytest.fixture(scope="module")
def service(path):
    with client(path, access=Access(TOKEN)) as found:
        yield found


class TestToken:
    @pytest.mark.parametrize(
        "header",
        [
            None,
            "",
            "Bearer",
            "Bearer ",
            f"Bearer {TOKEN}x",
            f"Bearer {TOKEN[:-1]}",
            f"Basic {TOKEN}",
            TOKEN,
            "Bearer ä",
        ],
    )
    def test_wrong(self, service, header):
        headers = {} if header is None else {"Authorization": header.encode("utf-8")}
        for route in ("/model", "/metrics", "/openapi.json", "/nothing"):
            answer = service.get(route, headers=headers)
            assert refused(answer, 401).startswith("a token is needed: send the header 'Authorization: Bearer TOKEN'")
            assert answer.headers["www-authenticate"] == "Bearer"

    def test_right(self, service):
        for scheme in ("Bearer", "bearer"):
            assert service.get("/model", headers={"Authorization": f"{scheme} {TOKEN}"}).status_code == 200

    def test_health_needs_none(self, service):
        assert service.get("/health").status_code == 200

    def test_the_document_says_so(self, service):
        document = service.get("/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}).json()
        assert document["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
        assert document["security"] == [{"token": []}]
        assert document["paths"]["/health"]["get"]["security"] == []


class TestHosts:
    @pytest.mark.parametrize("host", ["localhost", "localhost:8000", "LOCALHOST", "127.0.0.1:1", "[::1]:8000", "[::1]"])
    def test_known(self, path, host):
        with client(path, access=Access(hosts=("localhost", "127.0.0.1", "::1"))) as service:
            assert service.get("/health", headers={"Host": host}).status_code == 200

    @pytest.mark.parametrize(
        "host",
        [
            *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::2]"),
            *(
                "localhost:80@evil.com",
                "localhost:evil.com",
                "localhost:80:80",
                "localhost:123456",
                "localhost/evil.com",
            ),
            *(
                "[::1]evil.com",
                "[::1]:80@evil.com",
                "[::1",
                "user@localhost",
                "localhost ",
                "localhost#",
                "localhost/x",
            ),
        ],
    )
    def test_a_name_that_was_made_to_point_here(self, path, host):
        with client(path, access=Access(hosts=("localhost", "127.0.0.1", "::1"))) as service:
            answer = service.get("/health", headers={"Host": host})
            assert refused(answer, 400).startswith("the service does not answer to this host name")


def test_every_answer_has_its_headers(path):
    with client(path) as service:
        for answer in (service.get("/health"), service.get("/nothing"), ask(service)):
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert "access-control-allow-origin" not in answer.headers
            assert len(answer.headers["x-request-id"]) == 16


class TestSize:
    def test_announced(self, path):
        with client(path, limits=Limits(body_bytes=250)) as service:
            assert ask(service).status_code == 200
            detail = refused(ask(service, {}, {}, {}, {}), 413)
            assert detail == "the request is larger than 250 bytes; send fewer people at a time."

    @pytest.mark.parametrize("length", [b"9" * 5000, b"301"])
    def test_what_is_announced_is_not_waited_for(self, path, length):
        sent = asyncio.run(converse(path, [], [(b"content-length", length)], Limits(body_bytes=300)))
        assert sent[0]["status"] == 413

    def test_in_pieces_without_announcement(self, path):
        pieces = [{"type": "http.request", "body": b" " * 200, "more_body": True}] * 2
        sent = asyncio.run(converse(path, pieces, [], Limits(body_bytes=300)))
        assert sent[0]["status"] == 413


async def converse(path, messages, headers, limits, then=None):
    """Give messages to the service, then silence or one last message, and return what it sends."""
    app = create_app(ModelWatch(path), limits=limits)
    left, sent = list(messages), []

    async def receive():
        if left:
            return left.pop(0)
        if then is not None:
            return then
        return await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/predict", "raw_path": b"/predict", "query_string": b"",
             "headers": [(b"content-type", b"application/json"), *headers], "http_version": "1.1", "scheme": "http",
             "asgi": {"version": "3.0"}, "client": None, "server": None, "root_path": ""}  # fmt: skip
    await app(scope, receive, send)
    return sent


class TestTime:
    def test_a_slow_client_is_sent_away(self, path):
        pieces = [{"type": "http.request", "body": b"{", "more_body": True}]
        sent = asyncio.run(converse(path, pieces, [], Limits(body_seconds=0.1)))
        assert sent[0]["status"] == 408
        assert json.loads(sent[1]["body"])["detail"].startswith("the request did not arrive within 0.1 seconds")

    def test_a_client_that_leaves_gets_nothing(self, path):
        pieces = [{"type": "http.request", "body": b"{", "more_body": True}]
        assert asyncio.run(converse(path, pieces, [], Limits(), {"type": "http.disconnect"})) == []

    def test_whatever_hangs_is_ended(self, monkeypatch):
        monkeypatch.setattr("neuralsurv.service.middleware._GRACE", 0.0)

        async def hangs(scope, receive, send):
            await asyncio.Event().wait()

        from starlette.testclient import TestClient

        app = Middleware(hangs, Access(), Limits(seconds=0.1), PrometheusMetrics(), ())
        assert refused(TestClient(app).get("/"), 503).startswith("there was no answer within 0.1 seconds")

    def test_an_error_after_the_answer_has_begun_is_not_answered_again(self):
        async def breaks(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise RuntimeError("too late")

        sent = []

        async def receive():
            return {"type": "http.request"}

        async def send(message):
            sent.append(message["type"])

        gate = Middleware(breaks, Access(), Limits(), PrometheusMetrics(), ())
        asyncio.run(gate({"type": "http", "method": "GET", "path": "/", "headers": []}, receive, send))
        assert sent == ["http.response.start"]


def test_limits_that_would_refuse_everything():
    with pytest.raises(InputError, match=r"the limit people=0 must be above 0"):
        Limits(people=0)
