import io

import pandas as pd
import pytest

from neuralsurv.cli.tables.table_input import read_table
from neuralsurv.cli.tables.table_output import csv_text, write_table


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet", "a.feather", "a.csv.gz", "a.parquet.gz"])
def test_what_is_written_is_read_back(tmp_path, name):
    frame = pd.DataFrame({"row": [0, 1], "mean": [0.1 + 0.2, 1e-300], "who": ["a", "b"]}, index=[5, 6])
    write_table(frame, tmp_path / name, force=False)
    pd.testing.assert_frame_equal(read_table(tmp_path / name), frame.reset_index(drop=True))
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"])
def test_texts_that_begin_like_a_formula(start):
    text = f"{start}cmd|' /c calc'!A1"
    cells = pd.Series([text, "plain", None])
    frame = pd.DataFrame({text: cells, "category": cells.astype("category"), "string": cells.astype("string")})
    found = pd.read_csv(io.StringIO(csv_text(frame)))
    assert found.columns[0] == f"'{text}"
    assert found.iloc[0].tolist() == [f"'{text}"] * 3
    assert found.iloc[1].tolist() == ["plain"] * 3
    assert found.iloc[2].isna().all()


def test_a_carriage_return_inside_a_text_begins_no_cell():
    frame = pd.DataFrame({"id": ["a\r=1+1", "b"], "mean": [-0.25, 1 / 3]})
    assert csv_text(frame) == '"id","mean"\n"a\r=1+1",-0.25\n"b",0.3333333333333333\n'


def test_numbers_stay_as_they_are():
    frame = pd.DataFrame({"mean": [-0.25, 1 / 3], "id": ["-5", "+1.5e3"], "mixed": [-1, "-x"], "late": [True, False]})
    assert csv_text(frame, digits="%.3g") == "mean,id,mixed,late\n-0.25,-5,-1,True\n0.333,+1.5e3,'-x,False\n"
    assert csv_text(frame[["mean"]], separator="\t") == "mean\n-0.25\n0.3333333333333333\n"
