"""Requests for a few people: answered together, each as if it were alone."""

import asyncio
import threading

import numpy as np
import pytest

from neuralsurv import NeuralSurv
from neuralsurv.service import application
from neuralsurv.service.answers import answer
from neuralsurv.service.batching import BatchingThread
from neuralsurv.service.model_watch import ModelWatch
from neuralsurv.service.warm_predictor import TimesAskedFor
from service.small_service import PERSON, client, cohort, write

TIMES = [0.5, 1.0]


@pytest.fixture(scope="module")
def model():
    return NeuralSurv(draws=40, verbose=False, random_state=0).fit(*cohort())


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    place = tmp_path_factory.mktemp("batches") / "small.neuralsurv"
    model.save(place)
    return place


def crowd(path, bodies, work=answer):
    """Send requests at the same time and return the answers, and how many people each prediction was for."""
    from httpx2 import ASGITransport, AsyncClient

    app, sizes, entered, go_on = application.create_app(ModelWatch(path)), [], threading.Event(), threading.Event()

    def counted(questions):
        sizes.append(len(questions))
        entered.set()
        assert go_on.wait(60)
        return work(questions)

    async def ask():
        async with AsyncClient(transport=ASGITransport(app), base_url="http://service") as many:
            first = asyncio.create_task(many.post("/predict", json=bodies[0]))
            await asyncio.to_thread(entered.wait, 60)
            others = [asyncio.create_task(many.post("/predict", json=body)) for body in bodies[1:]]
            # All of them have reached the queue when their tasks wait for the answer.
            await asyncio.sleep(0.3)
            go_on.set()
            return [found.json() for found in await asyncio.gather(first, *others)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(application, "answer", counted)
        return asyncio.run(ask()), sizes


def test_what_has_come_in_meanwhile_is_answered_together_and_as_if_alone(path, model):
    people = [{**PERSON, "age": 40.0 + k} for k in range(4)] + [{**PERSON, "dose": None}]
    bodies = [{"people": [person], "times": TIMES} for person in people]
    bodies += [{"people": people[:2], "times": TIMES, "level": 0.5}, {"people": [{"age": "old"}], "times": TIMES}]
    bodies += [{"people": [PERSON], "quantities": ["event_time"]}] * 2
    found, sizes = crowd(path, bodies)
    assert sizes == [1, 4, 1, 1, 1]
    with client(path) as alone:
        for body, got in zip(bodies, found, strict=True):
            wanted = alone.post("/predict", json=body).json()
            assert got.keys() == wanted.keys()
            if "people" not in wanted:
                assert got == wanted
                continue
            for one, other in zip(got["people"], wanted["people"], strict=True):
                assert (one["filled_in"], one["outside_training"]) == (other["filled_in"], other["outside_training"])
                for name in set(one) - {"filled_in", "outside_training"}:
                    for key, values in other[name].items():
                        # Draws are in single precision, and some processors round by how many people come together.
                        np.testing.assert_allclose(np.array(one[name][key], float), np.array(values, float), rtol=1e-6)


def test_one_that_breaks_does_not_break_the_others(path):
    def breaks(questions):
        if any(question.encoded[0, 0] > 1 for question in questions):
            raise ZeroDivisionError
        return answer(questions)

    bodies = [{"people": [{**PERSON, "age": age}], "times": TIMES} for age in (60.0, 60.0, 90.0, 59.0)]
    found, sizes = crowd(path, bodies, breaks)
    assert sizes == [1, 3, 1, 1, 1]
    assert ["people" in one for one in found] == [True, True, False, True]


def test_much_work_in_a_few_bytes_goes_elsewhere(path, monkeypatch):
    names = []
    monkeypatch.setattr(
        application, "answer", lambda questions: names.append(threading.current_thread().name) or answer(questions)
    )
    with client(path) as service:
        for size in (2**40, 0):
            monkeypatch.setattr(application, "_FEW_NUMBERS", size)
            assert service.post("/predict", json={"people": [PERSON], "times": TIMES}).status_code == 200
    assert [name == "predict_batches" for name in names] == [True, False]


def test_times_that_were_asked_for_are_kept_within_bounds(path, model):
    predictor = ModelWatch(path).current.predictor
    encoded = model.encoding_.with_gaps(cohort()[0].head(3))
    expected = predictor.survival(encoded, TIMES).draws
    with pytest.MonkeyPatch.context() as patch:
        # Nothing is made again for times that were asked for.
        patch.setattr(type(predictor.posterior), "on_times", None)
        assert (predictor.survival(encoded, TIMES).draws == expected).all()
    most = 2 * predictor.count * 140
    kept = TimesAskedFor(most)
    for k in range(5):
        scaled = predictor.scaled(np.array([0.1 + k]))
        assert kept.at(scaled, lambda at=scaled: predictor.posterior.on_times(predictor.draws(), at)) is not None
        assert 0 < sum(one.numbers for one in kept._kept.values()) <= most
    assert len(kept._kept) < 5


def test_a_model_with_a_network_is_not_quick(tmp_path):
    assert not ModelWatch(write(tmp_path)).current.quick


def test_the_thread_ends_after_what_waits():
    seen, go_on = [], threading.Event()
    thread = BatchingThread(lambda jobs: seen.append(jobs) or go_on.wait(60), most=2)
    thread.add(1)
    while not seen:
        pass
    for job in (2, 3, 4):
        thread.add(job)
    thread.close()
    runs = next(one for one in threading.enumerate() if one.name == "predict_batches")
    go_on.set()
    runs.join(60)
    assert seen == [[1], [2, 3], [4]]
