"""``neuralsurv serve`` and ``neuralsurv explore``: the options, and a real process that answers and ends."""

import asyncio
import re
import signal
import socket
import stat
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from cli.run_command import refused, run
from neuralsurv.cli.commands import serve
from neuralsurv.cli.commands.serve import is_loopback, read_token, url
from neuralsurv.cli.options import ServeOptions
from neuralsurv.errors import InputError
from service.own_process import call, running, stop
from service.small_service import PERSON, model

TOKEN = "a-token-of-many-letters"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    place = tmp_path_factory.mktemp("serving") / "m.neuralsurv"
    model().save(place)
    return place


def code_of(address, **headers):
    with pytest.raises(urllib.error.HTTPError) as caught:
        call(address, **headers)
    caught.value.close()
    return caught.value.code


def test_a_process_that_answers_and_ends(path):
    with running("explore", path, "--no-browser", NEURALSURV_TOKEN=TOKEN) as (process, said):
        address = said.pop("url")
        assert said == {"model": str(path), "token": True, "explorer": True, "notes": [], "warnings": []}
        assert address.startswith("http://127.0.0.1:")
        right = {"Authorization": f"Bearer {TOKEN}"}
        answer = call(f"{address}/predict", {"people": [PERSON], "times": [1.0]}, **right)
        assert 0 < answer["people"][0]["survival"]["mean"][0] < 1
        assert code_of(f"{address}/model") == 401
        assert code_of(f"{address}/health", Host="evil.example") == 400
        # The page itself holds no data and needs no token.
        with urllib.request.urlopen(f"{address}/", timeout=60) as page:
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            assert b'src="assets/explorer.js"' in page.read()
        assert stop(process, signal.SIGINT) == ("", "")
        assert process.returncode == 0


def test_small_answers_are_sent_at_once():
    """Without the option, the end of an answer waits 40 ms for the client to confirm its beginning."""

    async def option_of_a_connection():
        found = asyncio.get_running_loop().create_future()

        class Look(asyncio.Protocol):
            def connection_made(self, transport):
                found.set_result(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
                transport.close()

        place = serve._listening("127.0.0.1", 0)
        async with await asyncio.get_running_loop().create_server(Look, sock=place):
            _, writer = await asyncio.open_connection(*place.getsockname())
            writer.close()
            return await found

    assert asyncio.run(option_of_a_connection()) != 0


class TestRefused:
    def test_other_machines_need_a_token(self, path):
        for command in ("serve", "explore"):
            said = refused(command, path, "--host", "0.0.0.0")
            assert said == (
                "--host 0.0.0.0 can be reached from other machines; set a token (NEURALSURV_TOKEN or --token-file), or "
                "say --no-token."
            )

    def test_a_port_that_is_taken(self, path):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            said = refused("serve", path, "--port", port)
        assert said.startswith(f"cannot listen on 127.0.0.1 port {port}: Address already in use; choose another with")

    def test_no_such_address(self, path):
        said = refused("serve", path, "--host", "no.such.host.invalid", "--no-token")
        assert said.startswith("--host no.such.host.invalid is not an address of this machine")

    def test_a_model_that_is_none(self, tmp_path):
        assert "there is no file" in refused("serve", tmp_path / "m.neuralsurv")

    def test_a_limit_that_would_refuse_everything(self, path):
        assert refused("serve", path, "--timeout", "0") == "--timeout 0 must be above 0."

    @pytest.mark.parametrize("missing", ["fastapi", "orjson", "uvicorn", "prometheus_client"])
    def test_without_the_extra(self, path, monkeypatch, missing):
        monkeypatch.setitem(sys.modules, missing, None)
        assert refused("serve", path) == f"this needs {missing}: pip install 'neuralsurv[serve]'."


class TestToken:
    def test_from_the_environment_or_a_file(self, monkeypatch, tmp_path):
        assert read_token(None) is None
        monkeypatch.setenv("NEURALSURV_TOKEN", TOKEN)
        assert read_token(None) == TOKEN
        (tmp_path / "token").write_text("another-token-of-many-letters\n", encoding="utf-8")
        assert read_token(tmp_path / "token") == "another-token-of-many-letters"

    @pytest.mark.parametrize("token", ["short", "sixteen letters and a space", "ä" * 20, "a" * 20 + "\x07"])
    def test_bad_ones(self, token, tmp_path):
        (tmp_path / "token").write_text(token, encoding="utf-8")
        with pytest.raises(
            InputError, match=rf"has {len(token)} characters; use at least 16 letters, digits and signs"
        ):
            read_token(tmp_path / "token")

    def test_no_such_file(self, tmp_path):
        with pytest.raises(InputError, match=r"the token file '.*' cannot be read: .*No such file"):
            read_token(tmp_path / "token")


@pytest.mark.parametrize(
    ("host", "loopback", "address"),
    [
        ("127.0.0.1", True, "http://127.0.0.1:8"),
        ("127.1.2.3", True, "http://127.1.2.3:8"),
        ("localhost", True, "http://localhost:8"),
        ("::1", True, "http://[::1]:8"),
        ("0.0.0.0", False, "http://127.0.0.1:8"),
        ("::", False, "http://[::1]:8"),
        ("10.0.0.1", False, "http://10.0.0.1:8"),
        ("example.org", False, "http://example.org:8"),
    ],
)
def test_addresses(host, loopback, address):
    assert is_loopback(host) is loopback
    assert url(host, 8) == address


class TestOptions:
    """What the options become; no process."""

    @pytest.fixture
    def served(self, monkeypatch):
        found = []
        monkeypatch.setattr(
            serve, "run", lambda path, options, messages, browser=False: found.append((options, browser))
        )
        return found

    def test_explore_opens_a_browser_unless_asked_not_to(self, served):
        run("explore", "m.neuralsurv")
        run("explore", "m.neuralsurv", "--no-browser", "--port", 9)
        assert served == [(ServeOptions(port=0, explorer=True), True), (ServeOptions(port=9, explorer=True), False)]

    def test_serve(self, served):
        run("serve", "m.neuralsurv")
        options = ["--max-people", 5, "--max-times", 6, "--max-bytes", 7, "--timeout", 8]
        run(
            "serve",
            "m.neuralsurv",
            *options,
            "--name",
            "a.org",
            "--name",
            "b.org",
            "--explorer",
            "--threads",
            3,
            "--workers",
            2,
        )
        limits = {"max_people": 5, "max_times": 6, "max_bytes": 7, "timeout": 8.0}
        assert served == [
            (ServeOptions(), False),
            (ServeOptions(name=("a.org", "b.org"), threads=3, workers=2, explorer=True, **limits), False),
        ]


def test_the_browser_gets_the_page_with_the_token_where_no_log_sees_it(path, monkeypatch, capsys):
    opened, seen = [], threading.Event()
    monkeypatch.setenv("NEURALSURV_TOKEN", TOKEN)

    def browser(address):
        # What a browser is started with can be read by every user of the machine; the file by nobody else.
        page = Path(url2pathname(urlsplit(address).path))
        modes = [stat.S_IMODE(place.stat().st_mode) for place in (page, page.parent)]
        opened.extend([address, page, modes, page.read_text(encoding="utf-8")])
        seen.set()

    def stop(self, sockets):
        assert seen.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr("webbrowser.open", browser)
    monkeypatch.setattr("uvicorn.Server.run", stop)
    ended = run("explore", path)
    asked, page, modes, text = opened
    assert TOKEN not in asked
    assert asked.startswith("file:///")
    assert modes == [0o600, 0o700]
    assert not page.parent.exists()
    (there,) = set(re.findall(r'(?:url=|href=")(http[^"]*)"', text))
    address = there.removesuffix(f"/#token={TOKEN}")
    assert address.startswith("http://127.0.0.1:")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        f"exploring m.neuralsurv at {address}/#token={TOKEN}",
        "with a token, up to 1000 people and 500 times a request; stop with Ctrl-C",
        "stopped",
    ]


def test_without_a_token_the_browser_gets_the_address_itself(path, monkeypatch):
    opened, seen = [], threading.Event()

    def browser(address):
        opened.append(address)
        seen.set()

    def stop(self, sockets):
        assert seen.wait(60)
        raise KeyboardInterrupt

    monkeypatch.delenv("NEURALSURV_TOKEN", raising=False)
    monkeypatch.setattr("webbrowser.open", browser)
    monkeypatch.setattr("uvicorn.Server.run", stop)
    ended = run("explore", path)
    assert ended.out.splitlines()[0] == f"exploring m.neuralsurv at {opened[0]}"
    assert opened[0].startswith("http://127.0.0.1:")
