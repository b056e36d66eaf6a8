"""The routes: what they answer is what the library says, and what they refuse is said in a sentence."""

import asyncio
import json
import logging
import re
import time

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from neuralsurv.errors import NotFiniteError
from neuralsurv.service import application
from neuralsurv.service.deadline import Deadline
from neuralsurv.service.model_watch import ModelWatch
from neuralsurv.service.request_parsing import Limits
from service.small_service import PERSON, ask, client, model, refused, table, write


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="module")
def service(path):
    with client(path) as found:
        yield found


PEOPLE = ({}, {"age": 70.0, "stage": None}, {"dose": None, "smoker": False})


def rows(frame, name, count):
    return frame[name].to_numpy().reshape(count, -1)


class TestPredictions:
    @pytest.mark.parametrize(
        ("name", "question", "expected"),
        [
            ("survival", {}, lambda m, x: m.predict_survival(x, [0.5, 1.0])),
            ("survival", {"given": 0.4}, lambda m, x: m.predict_conditional_survival(x, [0.5, 1.0], 0.4)),
            ("hazard", {}, lambda m, x: m.predict_hazard(x, [0.5, 1.0])),
            ("cumulative_hazard", {}, lambda m, x: m.predict_cumulative_hazard(x, [0.5, 1.0])),
            ("quantile", {"shares": [0.2, 0.9]}, lambda m, x: m.predict_quantile(x, [0.2, 0.9])),
            ("rmst", {}, lambda m, x: m.predict_rmst(x, m.time_scale_)),
            ("rmst", {"horizon": 0.7}, lambda m, x: m.predict_rmst(x, 0.7)),
            ("event_time", {}, lambda m, x: m.predict_event_time(x)),
        ],
    )
    def test_every_quantity_is_that_of_the_library(self, service, name, question, expected):
        answer = ask(service, *PEOPLE, quantities=[name], level=0.8, **question).json()
        frame = expected(model(), table(*PEOPLE)).to_frame(0.8)
        for key in ("mean", "median", "lower", "upper"):
            found = np.array([np.atleast_1d(person[name][key]) for person in answer["people"]], dtype=float)
            # JSON has no infinity: what the curve does not reach is null.
            wanted = rows(frame, key, 3)
            np.testing.assert_allclose(found, np.where(np.isinf(wanted), np.nan, wanted), rtol=1e-12)

    def test_all_at_once_are_the_same_as_one_by_one(self, service):
        names = ["survival", "hazard", "quantile", "rmst", "event_time"]
        together = ask(service, *PEOPLE, quantities=names).json()
        for name in names:
            alone = ask(service, *PEOPLE, quantities=[name]).json()
            assert [person[name] for person in alone["people"]] == [person[name] for person in together["people"]]

    def test_unreached_draws_are_counted(self, service):
        answer = ask(service, {"age": 20.0}, quantities=["event_time", "quantile"], shares=[0.01, 0.99]).json()
        own, curve = answer["people"][0]["event_time"], answer["people"][0]["quantile"]
        expected = model().predict_event_time(table({"age": 20.0})).unreached.iloc[0]
        assert 0 < own["unreached"] == expected
        assert own["mean"] is None
        assert (curve["unreached"][0], curve["upper"][0] is None) == (0.0, False)
        assert curve["unreached"][1] > 0.5
        assert curve["median"][1] is None

    def test_times_keep_their_order_and_extrapolation_is_said(self, service):
        last = model().time_scale_
        answer = ask(service, times=[2 * last, 0.5]).json()
        assert (answer["times"], answer["extrapolated"]) == ([2 * last, 0.5], [True, False])
        survival = answer["people"][0]["survival"]["mean"]
        assert survival[0] < survival[1]

    def test_outside_training(self, service):
        frame = model().encoding_.columns[0]
        answer = ask(service, {}, {"age": 10.0, "visits": 7}).json()
        assert answer["people"][0]["outside_training"] == []
        assert answer["people"][1]["outside_training"] == [
            {"column": "age", "side": "below", "low": frame.low, "high": frame.high},
            {"column": "visits", "side": "above", "low": 0.0, "high": 6.0},
        ]

    def test_a_left_out_value_is_a_missing_one(self, service):
        without = {name: value for name, value in PERSON.items() if name != "dose"}
        body = {"people": [without, {**PERSON, "dose": None}], "times": [1.0]}
        first, second = service.post("/predict", json=body).json()["people"]
        assert first == second
        assert first["filled_in"] == ["dose"]
        assert ask(service).json()["people"][0]["filled_in"] == []


class TestRefusals:
    @pytest.mark.parametrize(
        ("person", "column", "sentence"),
        [
            (
                {"agee": 3},
                "agee",
                r"there is no covariate 'agee'; did you mean 'age'\? The covariates are age, dose, vi",
            ),
            (
                {"age": "old"},
                "age",
                r"covariate 'age' must be a finite number, but is not in 1 row \(row 1, counting from 0\)",
            ),
            ({"age": True}, "age", r"covariate 'age' must be a finite number"),
            ({"age": 10**400}, "age", r"covariate 'age' must be a finite number"),
            ({"stage": 3}, "stage", r"covariate 'stage' must be text"),
            (
                {"stage": "IIII"},
                "stage",
                r"has the value 'IIII' in 1 row \(row 1, counting from 0\), .* did you mean 'III'\? It knows II, III",
            ),
            ({"smoker": "yes"}, "smoker", r"covariate 'smoker' must be true or false"),
        ],
    )
    def test_people(self, service, person, column, sentence):
        answer = ask(service, {}, person)
        assert re.search(sentence, refused(answer, 422))
        assert answer.json()["column"] == column

    def test_a_number_too_far_away_to_be_scaled(self, service):
        assert "column 'dose' is too far from the training data" in refused(ask(service, {"dose": 1.7e308}), 422)

    @pytest.mark.parametrize(
        ("question", "sentence"),
        [
            ({"people": []}, r"people: list should have at least 1 item"),
            ({"people": {}}, r"people: input should be a valid list"),
            ({"people": [3]}, r"people\[0\]: input should be a valid dictionary"),
            ({"people": [{"age": [1]}]}, r"people\[0\]\.age: input should be a valid"),
            ({"times": [-1.0]}, r"times\[0\]: input should be greater than or equal to 0"),
            ({"times": ["soon"]}, r"times\[0\]: input should be a valid number"),
            ({"times": []}, r"times: survival needs at least one time"),
            ({"quantities": ["luck"]}, r"quantities\[0\]: input should be 'survival'"),
            ({"quantities": []}, r"quantities: list should have at least 1 item"),
            ({"shares": [1.0]}, r"shares\[0\]: input should be less than 1"),
            ({"level": 0}, r"level: input should be greater than 0"),
            ({"horizon": 0}, r"horizon: input should be greater than 0"),
            ({"given": -1}, r"given: input should be greater than or equal to 0"),
            ({"seed": 3}, r"there is no field 'seed'; the fields are people, times, quantities"),
        ],
    )
    def test_questions(self, service, question, sentence):
        detail = refused(service.post("/predict", json={"people": [PERSON], "times": [1.0], **question}), 422)
        assert re.search(sentence, detail)

    @pytest.mark.parametrize("name", ["times", "horizon", "given"])
    def test_times_of_which_nothing_is_known(self, service, name):
        far = 10 * model().time_scale_
        for value, status in ((far, 200), (np.nextafter(far, 2 * far), 422)):
            answer = ask(service, **{name: [value] if name == "times" else value}, quantities=["rmst", "survival"])
            assert answer.status_code == status, answer.text
        assert re.search(rf"{name}: \S+ lies beyond \S+, 10 times the last training time", refused(answer, 422))

    def test_many_faults_are_not_all_listed(self, service):
        assert refused(ask(service, times=[-1.0] * 9), 422).endswith("(and 4 more).")

    @pytest.mark.parametrize("text", ['{"people": [{"age": NaN}]}', '{"times": [1e999], "people": [{}]}'])
    def test_what_is_not_finite(self, service, text):
        answer = service.post("/predict", content=text, headers={"Content-Type": "application/json"})
        refused(answer, 422)

    @pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "1" * 5000, "\udce4"])
    def test_what_is_not_json(self, service, text):
        body = text.encode("utf-8", "surrogateescape")
        answer = service.post("/predict", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 422)
        refused(answer, answer.status_code)

    @pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
    def test_other_kinds_of_content_which_a_strange_page_could_send(self, service, kind):
        body = json.dumps({"people": [PERSON], "times": [1.0]})
        answer = service.post("/predict", content=body, headers={"Content-Type": kind})
        assert "must be JSON: send the header 'Content-Type: application/json'" in refused(answer, 415)

    def test_paths_and_methods(self, service):
        assert refused(service.get("/nothing"), 404) == "there is nothing at this path."
        assert refused(service.get("/predict"), 405) == "this path does not take this method."
        # The page is there only if asked for, and documentation that would fetch scripts never.
        for path in ("/", "/docs", "/redoc", "/assets/explorer.js"):
            refused(service.get(path), 404)


class TestLimits:
    def test_amounts(self, path):
        with client(path, limits=Limits(people=3, times=4, cells=8)) as service:
            assert ask(service, {}, {}, {}).status_code == 200
            assert refused(ask(service, *[{}] * 4), 422) == "people: there are 4; send at most 3 at a time."
            detail = refused(ask(service, times=[1.0] * 5), 422)
            assert detail == "times: there are 5; send at most 4 at a time."
            detail = refused(ask(service, {}, {}, {}, times=[1.0] * 3), 422)
            assert detail.startswith("3 people at 3 times are 9 values of each quantity; ask for at most 8")

    def test_a_prediction_is_given_up_between_blocks(self, path, monkeypatch):
        monkeypatch.setattr("neuralsurv.posterior.gaussian.people_blocks.__defaults__", (1,))
        looks = []

        def third_look_is_too_late(deadline):
            looks.append(deadline)
            if len(looks) == 3:
                time.sleep(deadline.left + 0.01)
            return check(deadline)

        check = Deadline.check
        monkeypatch.setattr(Deadline, "check", third_look_is_too_late)
        with client(path, limits=Limits(seconds=0.5)) as service:
            answer = ask(service, *[{}] * 900, times=[1.0], quantities=["rmst"])
            assert "the prediction took longer than allowed; ask for fewer" in refused(answer, 503)
            assert answer.headers["retry-after"] == "1"
            assert len(looks) == 3

    def test_who_waits_too_long_is_told(self, path, monkeypatch):
        monkeypatch.setattr(application, "answer", lambda _: time.sleep(1.5))
        with client(path, limits=Limits(seconds=0.1)) as service:
            assert refused(ask(service), 503) == "there was no time to answer; try again later."

    def test_nobody_waits_in_a_line_that_is_too_long(self, path, monkeypatch):
        monkeypatch.setattr(application, "answer", lambda _: time.sleep(0.5) or [{}])
        app = application.create_app(ModelWatch(path), limits=Limits(waiting=2))
        from httpx2 import ASGITransport, AsyncClient

        async def crowd():
            body = {"people": [PERSON], "times": [1.0]}
            async with AsyncClient(transport=ASGITransport(app), base_url="http://service") as many:
                return await asyncio.gather(*[many.post("/predict", json=body) for _ in range(5)])

        answers = asyncio.run(crowd())
        assert sorted(answer.status_code for answer in answers) == [200, 200, 503, 503, 503]
        busy = next(answer for answer in answers if answer.status_code == 503)
        assert refused(busy, 503) == "too many predictions are waiting; try again later."


class TestModelAndHealth:
    def test_model(self, service, path):
        found = service.get("/model").json()
        assert found["file"] == "small.neuralsurv"
        assert found["last_training_time"] == model().time_scale_
        assert found["training"] == model().training_
        age, dose, visits, stage, smoker = found["features"]
        column = model().encoding_.columns[0]
        assert age["training_range"] == {"low": column.low, "high": column.high}
        assert (age["missing_in_training"], dose["missing_in_training"]) == (False, True)
        assert (age["whole"], visits["whole"]) == (False, True)
        assert (visits["typical"], stage["typical"], stage["levels"]) == (3.0, "III", ["II", "III"])
        assert smoker["levels"] == [False, True]
        assert str(path.parent) not in json.dumps(found)

    def test_a_typical_person_can_be_sent_back(self, service):
        found = service.get("/model").json()
        person = {feature["name"]: feature["typical"] for feature in found["features"]}
        answer = service.post("/predict", json={"people": [person], "times": [1.0]}).json()
        assert answer["people"][0]["outside_training"] == []

    def test_health(self, service):
        found = service.get("/health").json()
        assert (found["status"], found["problem"]) == ("ok", None)
        assert found["model"] == service.get("/model").json()["fingerprint"]

    def test_a_model_without_ranges(self, tmp_path):
        from pathlib import Path

        old = Path(__file__).parents[1] / "fixtures" / "before_ranges.neuralsurv"
        with client(old) as service:
            age, *_ = service.get("/model").json()["features"]
            assert age["training_range"] is None
            assert 50 < age["mean"] < 70
            person = {"age": 1000.0, "dose": None, "stage": "II"}
            answer = service.post("/predict", json={"people": [person], "times": [1.0]}).json()
            assert answer["people"][0]["outside_training"] == []


def test_metrics(path):
    with client(path) as service:
        ask(service, {}, {})
        ask(service, {"age": "old"})
        service.get("/made-up-by-a-client")
        answer = service.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found[sample.name, *sorted(sample.labels.values())] = sample.value
    assert found["neuralsurv_requests_total", "/predict", "200", "POST"] == 1
    assert found["neuralsurv_requests_total", "/predict", "422", "POST"] == 1
    assert found["neuralsurv_requests_total", "404", "GET", "other"] == 1
    assert found["neuralsurv_request_seconds_count", "/predict"] == 2
    assert found["neuralsurv_predicted_people_total",] == 2
    assert found["neuralsurv_predictions_in_progress",] == 0
    assert (found["neuralsurv_model_loads",], found["neuralsurv_model_stale",]) == (1, 0)
    assert "made-up" not in answer.text


class TestFaults:
    def test_no_stack_trace_and_no_value_leaves_the_service(self, path, monkeypatch, caplog):
        def broken(*_):
            raise ZeroDivisionError("age of Ms Smith is 77")

        monkeypatch.setattr(application, "answer", broken)
        caplog.set_level(logging.INFO, logger="neuralsurv.service")
        with client(path) as service:
            answer = ask(service, {"age": 77.25})
        assert refused(answer, 500).startswith("the service failed on this request; this is an error of the service")
        assert "Traceback" not in answer.text
        assert "Smith" not in answer.text
        said = "\n".join(record.getMessage() for record in caplog.records)
        assert re.search(
            r"unexpected ZeroDivisionError, request [0-9a-f]{16}, at .*test_application\.py:\d+ broken", said
        )
        assert answer.headers["x-request-id"] in said
        assert "Smith" not in said
        assert all(record.exc_info is None for record in caplog.records)

    def test_our_own_numerical_errors_are_faults_too(self, path, monkeypatch):
        def broken(*_):
            raise NotFiniteError("a sum is not finite")

        monkeypatch.setattr(application, "answer", broken)
        with client(path) as service:
            assert "not finite" not in refused(ask(service), 500)

    def test_logs_hold_nothing_about_a_person(self, path, caplog):
        caplog.set_level(logging.INFO, logger="neuralsurv.service")
        with client(path) as service:
            ask(service, {"age": 71.625})
            ask(service, {"age": "seventy-one"})
            service.get("/model?name=Smith", headers={"User-Agent": "Smith's browser"})
            service.request("BREW", "/secret/Smith")
        said = [record.getMessage() for record in caplog.records]
        assert [re.sub(r"\d+ ms| request=[0-9a-f]{16}", "", line).split() for line in said] == [
            ["POST", "/predict", "200", "people=1"],
            ["POST", "/predict", "422", "people=1"],
            ["GET", "/model", "200"],
            ["?", "other", "404"],
        ]
        for word in ("71", "seventy", "Smith", "testclient", "BREW"):
            assert word not in re.sub(r"request=[0-9a-f]{16}|\d+ ms", "", "\n".join(said))
