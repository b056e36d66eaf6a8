"""What a checkpoint says of another fit: the first difference, by names that the user has typed or knows."""

import copy

import numpy as np
import pandas as pd
import pytest

from neuralsurv.errors import InputError
from neuralsurv.files.fit_differences import difference_in_words
from small_cohort import quick_default, small_cohort

TABLE = small_cohort(80).frame().assign(arm=["a", "b", "c", "c"] * 20, one=1.0, early=0.0)
NAMES = {"time": "years", "event": "died", "features": ["age", "arm"], "training_passes": 1}


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    file = tmp_path_factory.mktemp("state") / "state"
    quick_default().fit_stream([TABLE], **NAMES, checkpoint=file)
    return file


def shorter(table: pd.DataFrame) -> pd.DataFrame:
    return table[:70]


def gap(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(age=table["age"].where(np.arange(80) != 5))


@pytest.mark.parametrize(
    ("parameters", "given", "change", "words"),
    [
        ({"hidden": (5,)}, {}, None, r"hidden is \(4,\) there and \(5,\) here"),
        ({"hidden": (4, 4)}, {}, None, r"hidden is \(4,\) there and \(4, 4\) here"),
        ({"activation": "tanh"}, {}, None, "activation is 'silu' there and 'tanh' here"),
        ({"headroom": 40}, {}, None, r"headroom is 30\.0 there and 40\.0 here"),
        ({"standardise": False}, {}, None, "standardise is True there and False here"),
        ({"random_state": 7}, {}, None, "random_state was another one"),
        ({}, {"sample_weight": "one"}, None, "the weight column is None there and 'one' here"),
        ({}, {"entry": "early"}, None, "the entry column is None there and 'early' here"),
        ({}, {"features": ["age"]}, None, "the covariates are age, arm there and age here"),
        ({}, {"features": ["arm", "age"]}, None, "the covariates are age, arm there and arm, age here"),
        ({}, {"training_passes": 2}, None, "training_passes is 1 there and 2 here"),
        ({}, {"training_batch_size": 512}, None, "training_batch_size is 256 there and 512 here"),
        ({}, {"method": "mini-batch"}, None, "method is 'exact' there and 'mini-batch' here"),
        ({}, {"directions": 3}, None, "directions is 200 there and 3 here"),
        # The usual number of passes depends on the number of rows, which is what has changed.
        ({}, {"training_passes": None}, shorter, "the number of rows is 80 there and 70 here"),
        ({}, {}, gap, "the number of values of column 'age' is 80 there and 79 here"),
        ({}, {}, lambda table: table.assign(age=2 * table["age"]), r"the smallest value of column 'age' is \d"),
        ({}, {}, lambda table: table.assign(arm=[*"abcc"] * 19 + [*"abdd"]), "column 'arm' holds other values there"),
        ({}, {}, lambda table: table.assign(arm=[*"cabc"] * 20), "its covariates are encoded differently"),
        ({}, {}, lambda table: table[::-1], "its rows come in another order"),
    ],
)
def test_what_the_user_has_changed_is_named(state, parameters, given, change, words):
    table = TABLE if change is None else change(TABLE)
    with pytest.raises(InputError, match=rf"belongs to another fit: {words}.*\. Name another file, or delete it to"):
        quick_default(**parameters).fit_stream([table], **{**NAMES, **given}, checkpoint=state)


PRINT = {
    "settings": {"hidden": [4], "ablation": {"pairs": True}},
    "cohort": {"times": {"time": [1.0, 2.0]}, "columns": [{"name": "age", "low": 1.0}]},
    "plan": {"exact": True, "keep_all": 300, "blocks": 16},
    "rows": {"rows": 2, "content": 5, "order": 6},
}


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (("cohort", "times", "time", 1), 3.0, "its rows hold other values"),
        (("rows", "content"), 4, "its rows hold other values"),
        (("plan", "keep_all"), 3, "directions is 3 there and 300 here"),
        (("plan", "blocks"), 8, "batch_size is 2048 there and 4096 here"),
        (("settings", "ablation", "pairs"), False, "settings.ablation.pairs is False there and True here"),
        # A file that another version wrote.
        (("cohort", "columns", 0, "codes"), [], "it was written by another version of neuralsurv"),
        (("cohort", "columns"), 7, "it was written by another version of neuralsurv"),
        (("plan", "exact"), "perhaps", "it was written by another version of neuralsurv"),
        (("plan", "pace"), 1, "it was written by another version of neuralsurv"),
    ],
)
def test_the_first_difference_in_words(keys, value, words):
    theirs = copy.deepcopy(PRINT)
    place = theirs
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    assert difference_in_words(theirs, PRINT) == words
    assert difference_in_words(PRINT, PRINT) is None
    assert difference_in_words(None, PRINT) == "it was written by another version of neuralsurv"
