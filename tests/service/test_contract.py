"""The OpenAPI document holds: whatever is sent, answers are as it says, and never a fault of ours."""

from collections import Counter

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from jsonschema_rs import validator_for
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from neuralsurv.service.application import create_app
from neuralsurv.service.model_watch import ModelWatch
from neuralsurv.service.request_parsing import Limits
from service.small_service import ask, client, model, write

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("contract"))


@pytest.fixture(scope="module")
def document(path):
    with client(path) as service:
        return service.get("/openapi.json").json()


def test_the_document_is_about_the_model(document):
    person = document["components"]["schemas"]["Person"]
    assert set(person["properties"]) == {column.name for column in model().encoding_.columns}
    assert sorted(person["required"]) == ["age", "smoker", "visits"]
    assert set(document["paths"]) == {"/predict", "/model", "/health", "/metrics"}
    asked = document["components"]["schemas"]["PredictRequest"]["properties"]
    assert asked["people"]["maxItems"] == Limits().people
    farthest = 10 * model().time_scale_
    assert asked["times"]["items"]["maximum"] == farthest
    for name in ("horizon", "given"):
        assert asked[name]["anyOf"][0]["maximum"] == farthest


def test_its_examples_are_answered(document, path):
    body = document["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]
    with client(path) as service:
        for example in body["examples"].values():
            answer = service.post("/predict", json=example["value"])
            assert answer.status_code == 200, answer.text
    assert set(body["examples"]) == {"survival", "all"}


@pytest.mark.parametrize("route", ["/model", "/health"])
def test_answers_are_as_described(document, path, route):
    schema = document["paths"][route]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    with client(path) as service:
        validator_for({**schema, "components": document["components"]}).validate(service.get(route).json())


def test_predictions_are_as_described(document, path):
    schema = document["paths"]["/predict"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    with client(path) as service:
        names = ["survival", "hazard", "cumulative_hazard", "quantile", "rmst", "event_time"]
        answer = ask(service, {"age": 1e3}, quantities=names, shares=[0.99]).json()
    validator_for({**schema, "components": document["components"]}).validate(answer)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_whatever_is_sent_to_predict(path, mode):
    contract = schemathesis.openapi.from_asgi("/openapi.json", create_app(ModelWatch(path)))
    seen = send(contract["/predict"]["POST"], mode, 30)
    assert set(seen) <= {200, 400, 422}
    # Otherwise nothing has come as far as the model, or nothing wrong was sent.
    assert seen[200] >= 3 if mode is GenerationMode.POSITIVE else seen[422] >= 3


def send(operation, mode, examples):
    """Send requests that schemathesis makes up, check the answers, and count them by status."""
    seen = Counter()

    @settings(max_examples=examples, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def one(case):
        seen[case.call_and_validate(checks=CHECKS, timeout=60).status_code] += 1

    one()
    return seen
