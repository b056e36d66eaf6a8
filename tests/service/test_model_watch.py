"""The model file behind a service: replaced on disk, replaced in memory; a bad one changes nothing."""

import asyncio
import logging
import os
import time

import pytest

from neuralsurv.errors import StorageError
from neuralsurv.service import model_watch, warm_predictor
from neuralsurv.service.model_watch import ModelWatch
from service.small_service import ask, client, model, table, write


def replace_file(path, data):
    """Replace a file in one step, as ``mv`` does."""
    new = path.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, path)


def bytes_of(seed, folder):
    folder.mkdir(exist_ok=True)
    return write(folder, seed).read_bytes()


@pytest.fixture
def path(tmp_path):
    return write(tmp_path)


def test_the_draws_are_made_once_and_are_those_of_the_library(path):
    ready = ModelWatch(path).current
    held = ready.predictor.draws()
    assert ready.predictor.draws() is held
    expected = model().predict_survival(table({}), [1.0]).draws
    encoded = ready.predictor.encoding.with_gaps(table({}))
    assert (ready.predictor.survival(encoded, [1.0]).draws == expected).all()


def test_many_draws_of_many_weights_are_not_held(path, monkeypatch):
    monkeypatch.setattr(warm_predictor, "_HOLD_NUMBERS", 10)
    assert ModelWatch(path).current.predictor.cached_draws is None


def test_nothing_happens_while_the_file_stays(path):
    watch = ModelWatch(path)
    before = watch.current
    assert not watch.refresh()
    assert watch.current is before
    assert watch.loads == 1


def test_a_new_file_is_taken_up(path, tmp_path):
    watch = ModelWatch(path)
    before = watch.current.fingerprint
    replace_file(path, bytes_of(4, tmp_path / "other"))
    assert watch.refresh()
    assert watch.current.fingerprint != before
    assert watch.current.model.time_scale_ == model(4).time_scale_
    assert (watch.problem, watch.loads, watch.failures) == (None, 2, 0)


def test_the_same_content_again_is_no_change(path):
    watch = ModelWatch(path)
    replace_file(path, path.read_bytes())
    assert not watch.refresh()
    assert watch.loads == 2


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda good: good[:-10], "small.neuralsurv is damaged"),
        (lambda good: b"", "small.neuralsurv is too short to be a model file (0 bytes)"),
        (lambda good: b"hello " * 100, "small.neuralsurv is not a model file"),
    ],
)
def test_a_bad_file_keeps_the_old_model_and_says_so(path, data, words):
    good = path.read_bytes()
    watch = ModelWatch(path)
    before = watch.current
    replace_file(path, data(good))
    assert not watch.refresh()
    assert watch.current is before
    assert watch.problem.startswith(words)
    assert str(path.parent) not in watch.problem
    # It is not read again and again, and forgotten as soon as a good one is there.
    assert not watch.refresh()
    assert watch.failures == 1
    replace_file(path, good)
    watch.refresh()
    assert watch.problem is None


def test_a_file_that_is_gone(path):
    watch = ModelWatch(path)
    path.unlink()
    assert not watch.refresh()
    assert watch.problem == "there is no file 'small.neuralsurv'."


def test_a_file_that_breaks_us_in_a_way_we_did_not_think_of(path, monkeypatch):
    watch = ModelWatch(path)
    replace_file(path, path.read_bytes())
    monkeypatch.setattr(model_watch, "load", lambda _: 1 / 0)
    assert not watch.refresh()
    assert watch.problem == "small.neuralsurv cannot be used: unexpected ZeroDivisionError."


def test_a_file_that_never_stops_changing(path, monkeypatch):
    monkeypatch.setattr(model_watch, "_PAUSE", 0.0)
    monkeypatch.setattr(model_watch, "_stamp", lambda _: (time.monotonic_ns(), 0, 0))
    with pytest.raises(StorageError, match=r"small\.neuralsurv changes while it is read; replace it in one step"):
        ModelWatch(path)


def test_the_first_file_must_be_good(tmp_path):
    with pytest.raises(StorageError, match="there is no file"):
        ModelWatch(tmp_path / "nothing.neuralsurv")


def test_watching_goes_on_by_itself(path, tmp_path):
    data = bytes_of(4, tmp_path / "other")
    watch = ModelWatch(path)
    changes = []

    async def scene():
        task = asyncio.create_task(watch.watch(0.01, lambda: changes.append(watch.current.fingerprint)))
        replace_file(path, data)
        end = time.monotonic() + 20
        while not changes and time.monotonic() < end:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(scene())
    assert changes == [watch.current.fingerprint]


def test_a_running_service_takes_up_a_new_file(path, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="neuralsurv.service")
    good, other = path.read_bytes(), bytes_of(4, tmp_path / "other")

    def wait(service, right):
        end = time.monotonic() + 20
        while not right(found := service.get("/health").json()):
            assert time.monotonic() < end, found
            time.sleep(0.02)
        return found

    with client(path, look_every=0.02) as service:
        first = ask(service).json()
        replace_file(path, other)
        wait(service, lambda health: health["model"] != first["model"])
        second = ask(service).json()
        assert second["model"] != first["model"]
        expected = model(4).predict_survival(table({}), [0.5, 1.0]).mean.to_numpy()[0]
        assert second["people"][0]["survival"]["mean"] == pytest.approx(expected, rel=1e-12)
        replace_file(path, good[:500])
        found = wait(service, lambda health: health["status"] == "stale")
        assert found["model"] == second["model"]
        assert "header does not fit" in found["problem"]
        assert ask(service).json() == second
        assert "neuralsurv_model_stale 1.0" in service.get("/metrics").text
        replace_file(path, good)
        wait(service, lambda health: health["status"] == "ok")
        assert ask(service).json() == first
    said = [record.getMessage() for record in caplog.records if "model" in record.getMessage()]
    assert any("the new model file is not used, the old model stays" in line for line in said)
    assert sum("model file opened again" in line for line in said) == 2
