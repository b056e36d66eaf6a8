"""Requests are counted before they are looked at closely, and what is refused is said in a short sentence."""

import json

import pytest
from starlette.exceptions import HTTPException

from neuralsurv.errors import InputError
from neuralsurv.service.covariates import covariates_of
from neuralsurv.service.request_parsing import Limits, read_request
from neuralsurv.service.schemas import PredictRequest
from service.small_service import PERSON, model


def read(body, **limits):
    text = body if isinstance(body, str) else json.dumps(body)
    return read_request(text.encode(), Limits(**limits), covariates_of(model().encoding_))


def test_a_good_one():
    asked = read({"people": [PERSON], "times": [1.0], "level": 0.8})
    assert (asked.people, asked.times, asked.level, asked.quantities) == ([PERSON], [1.0], 0.8, ["survival"])


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"people": [1] * 1001}, r"people: there are 1001; send at most 1000 at a time"),
        ({"people": [{}], "times": ["x"] * 501}, r"times: there are 501; send at most 500 at a time"),
        ({"people": [1] * 1000, "times": ["x"] * 500}, r"1000 people at 500 times are 500000 values of each quantity"),
        ({str(k): 1 for k in range(9)}, r"there is no field '0'; the fields are people, times, quantities, shares"),
        ({"people": [{str(k): [] for k in range(9)}]}, r"there is no covariate '0'; the covariates are age, dose"),
    ],
)
def test_what_is_too_much_is_refused_before_the_schema_sees_it(monkeypatch, body, sentence):
    monkeypatch.setattr(PredictRequest, "model_validate", None)
    with pytest.raises(InputError, match=sentence):
        read(body)


def test_one_person_who_cannot_be_read_is_enough():
    with pytest.raises(InputError, match=r"^people\[1\]: input should be a valid dictionary\.$"):
        read({"people": [PERSON] + [3] * 900})


@pytest.mark.parametrize("body", ['{"people": [{"age": 50, "age": 90}]}', '{"people": [], "age": 1, "age": 2}'])
def test_a_name_that_is_given_twice(body):
    with pytest.raises(InputError, match=r"^'age' is given twice in the same object; give it once\.$"):
        read(body)


@pytest.mark.parametrize("body", ["", "{", "[" * 10**6, "1" * 5000, '{"people": nobody}'])
def test_what_is_not_json(body):
    with pytest.raises(HTTPException, match="the body is not valid JSON") as caught:
        read(body)
    assert caught.value.status_code == 400


@pytest.mark.parametrize("body", ["3", "[]", "null", '"people"', "[" * 900 + "]" * 900])
def test_what_is_json_but_no_object(body):
    with pytest.raises(InputError, match=r"^the body: input should be a valid dictionary"):
        read(body)


def test_long_names_are_not_sent_back_whole():
    long = "a" * 10**6
    for body in ({long: 1}, {"people": [{long: 1}]}, f'{{"{long}": 1, "{long}": 1}}'):
        with pytest.raises(InputError, match=r"a{100}…'") as caught:
            read(body)
        assert len(str(caught.value)) < 500
        assert len(getattr(caught.value, "column", "")) <= 101
