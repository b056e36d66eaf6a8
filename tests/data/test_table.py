import io

import numpy as np
import pandas as pd
import pytest

from neuralsurv.data.table import check_episodes, numbers_rows, separate_outcome
from neuralsurv.errors import InputError

ROLES = {"time": "days", "event": "died", "entry": None, "weight": None, "id": None}
CSV = ",days,died,age\n" + "".join(f"{k},{k + 3},{k % 2},{50 + k * k}\n" for k in range(1, 9))
SUBJECT = ["a", "b", "a", "b", "c"]
ENTRY = np.array([0.0, 2.0, 5.0, 8.0, 1.0])
TIME = np.array([5.0, 6.0, 9.0, 12.0, 4.0])
EVENT = np.array([False, False, True, False, True])


def test_row_numbers_of_a_csv_file_are_refused_with_the_line_to_type():
    frame = pd.read_csv(io.StringIO(CSV))
    assert "Unnamed: 0" in frame
    with pytest.raises(
        InputError, match=r"column 'Unnamed: 0' numbers the 8 rows .* df = df.drop\(columns='Unnamed: 0'\)"
    ):
        separate_outcome(frame, None, ROLES)
    covariates, *_ = separate_outcome(frame.drop(columns="Unnamed: 0"), None, ROLES)
    assert list(covariates.columns) == ["age"]


def test_other_columns_without_a_name_are_covariates():
    frame = pd.read_csv(io.StringIO(CSV))
    shuffled = frame.assign(**{"Unnamed: 0": frame["Unnamed: 0"].to_numpy()[::-1]})
    assert "Unnamed: 0" in separate_outcome(shuffled, None, ROLES)[0]
    assert "visit" in separate_outcome(frame.rename(columns={"Unnamed: 0": "visit"}), None, ROLES)[0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1, 2], True),
        ([1, 2, 3], True),
        ([2, 3, 4], False),
        ([1, 3, 4], False),
        ([1.0, 2.0, 3.0], False),
        ([1], False),
        (pd.array([1, 2, None], "Int64"), False),
    ],
)
def test_what_numbers_the_rows(values, expected):
    assert numbers_rows(pd.Series(values)) is expected


def test_numbers_of_any_integer_type():
    assert numbers_rows(pd.Series(np.arange(3, dtype=np.uint8)))


class TestAccepted:
    def test_episodes_that_touch_that_leave_gaps_and_that_stand_alone(self):
        assert check_episodes(SUBJECT, ENTRY, TIME, EVENT).tolist() == SUBJECT

    @pytest.mark.parametrize("seed", range(5))
    def test_any_order_of_rows(self, seed):
        order = np.random.default_rng(seed).permutation(5)
        check_episodes(np.array(SUBJECT)[order], ENTRY[order], TIME[order], EVENT[order])

    def test_without_events(self):
        check_episodes(SUBJECT, ENTRY, TIME, None)

    @pytest.mark.parametrize(
        "subject",
        [
            [7, 8, 7, 8, 9],
            pd.Series([7, 8, 7, 8, 9], index=[5, 5, 5, 5, 5]),
            pd.array([7, 8, 7, 8, 9], dtype="Int64"),
            pd.Categorical(SUBJECT),
            np.array([7, "b", 7, "b", "c"], dtype=object),
        ],
    )
    def test_types_of_id(self, subject):
        assert check_episodes(subject, ENTRY, TIME, EVENT).shape == (5,)

    def test_the_same_times_in_different_subjects_do_not_overlap(self):
        check_episodes([1, 2, 3], np.zeros(3), np.ones(3), np.ones(3, dtype=bool))


class TestRefused:
    @pytest.mark.parametrize(("subject", "shown"), [(SUBJECT, "'a'"), ([7, 8, 7, 8, 9], "7")])
    def test_overlap(self, subject, shown):
        entry = np.where(np.arange(5) == 2, 4.5, ENTRY)
        message = (
            rf"subject {shown} has overlapping episodes: one starts at 4\.5 \(row 2, counting from 0\) before the one "
            "before it ends"
        )
        with pytest.raises(InputError, match=message + r"; 1 such pair\. Correct the entry times\."):
            check_episodes(subject, entry, TIME, EVENT)

    def test_overlaps_are_counted(self):
        entry = np.where(np.isin(np.arange(5), [2, 3]), 4.5, ENTRY)
        with pytest.raises(InputError, match=r"; 2 such pairs\."):
            check_episodes(SUBJECT, entry, TIME, EVENT)

    def test_the_same_episode_twice(self):
        with pytest.raises(
            InputError, match=r"subject 1 has overlapping episodes: one starts at 0 \(row 1, counting from 0\)"
        ):
            check_episodes([1, 1], np.zeros(2), np.ones(2), np.zeros(2, dtype=bool))

    def test_an_episode_within_another(self):
        with pytest.raises(
            InputError, match=r"subject 1 has overlapping episodes: one starts at 3 \(row 0, counting from 0\)"
        ):
            check_episodes([1, 1], np.array([3.0, 0.0]), np.array([4.0, 9.0]), np.zeros(2, dtype=bool))

    @pytest.mark.parametrize(("subject", "shown"), [(SUBJECT, "'a'"), ([7, 8, 7, 8, 9], "7")])
    def test_observed_after_the_event(self, subject, shown):
        event = np.array([True, True, True, False, True])
        message = (
            rf"subject {shown} is observed after its event \(row 2, counting from 0\); 2 such rows\. Only the last"
        )
        with pytest.raises(InputError, match=message):
            check_episodes(subject, ENTRY, TIME, event)

    @pytest.mark.parametrize(
        "subject", [["a", None, "a", None, "c"], [1, np.nan, 1, np.nan, 2], pd.array([1, None, 1, None, 2], "Int64")]
    )
    def test_missing_id(self, subject):
        message = (
            r"id is missing in 2 rows \(rows 1, 3, counting from 0\); every episode needs the subject it belongs to"
        )
        with pytest.raises(InputError, match=message):
            check_episodes(subject, ENTRY, TIME, EVENT)

    def test_subjects_that_cannot_be_compared(self):
        subject = np.empty(5, dtype=object)
        subject[:] = [[1], 2, 3, 4, 5]
        with pytest.raises(InputError, match="id cannot be compared: unhashable type: 'list'; give a number or a text"):
            check_episodes(subject, ENTRY, TIME, EVENT)

    @pytest.mark.parametrize(
        ("subject", "message"),
        [
            (["a", "b"], "id has 2 values for 5 rows; give one id per row"),
            (np.ones((5, 2)), "id has 2 dimensions; give one value for each row"),
            ("a", "id has 0 dimensions; give one value for each row"),
        ],
    )
    def test_wrong_shape(self, subject, message):
        with pytest.raises(InputError, match=message):
            check_episodes(subject, ENTRY, TIME, EVENT)

    def test_ragged(self):
        with pytest.raises(InputError, match=r"id cannot be read as one value for each row: setting an array element"):
            check_episodes([1, [2, 3], 1, 1, 1], ENTRY, TIME, EVENT)
