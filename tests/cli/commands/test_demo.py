"""The demonstration, run as the command runs it, on few rows."""

import re

import matplotlib
import numpy as np
import pytest
from matplotlib import image, pyplot

from neuralsurv.cli.commands import demo
from neuralsurv.data.simulate import lognormal_cohort, lognormal_survival

matplotlib.use("Agg")


def test_the_demonstration(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    folder = tmp_path / "new" / "folder"
    open_before = pyplot.get_fignums()
    demo.run(folder, 40)
    printed = capsys.readouterr().out

    assert "synthetic cohort, 40 rows" in printed
    assert "Survival: posterior median [90% band], and the truth" in printed
    # Six rows of the table of curves: a time, and median [lower, upper] with the truth for either group.
    pattern = r"│ +(\d+) │ (\d\.\d\d) \[(\d\.\d\d), (\d\.\d\d)\] │ +(\d\.\d\d) (in|out) │"
    rows = re.findall(pattern, printed)
    cohort = lognormal_cohort(40, seed=0)
    times = np.linspace(0, np.quantile(cohort.time, 0.98), 61)[9::10]
    for row, time in zip(rows, times, strict=True):
        shown, median, lower, upper, truth, where = row
        assert (shown, truth) == (f"{time:.0f}", f"{lognormal_survival(0, np.array([time]))[0]:.2f}")
        assert float(lower) <= float(median) <= float(upper)
        assert (where == "in") == (float(lower) <= float(truth) <= float(upper)) or truth in (lower, upper)
    assert [float(row[1]) for row in rows] == sorted((float(row[1]) for row in rows), reverse=True)

    assert len(re.findall(r"survival of group [01] to time \d+: [▁▂▃▄▅▆▇█]{61}", printed)) == 2
    assert re.search(rf"rows, events +│ 40, {cohort.event.sum()} ", printed)
    assert re.search(r"weights +│ \d{3} ", printed)
    for name in ("scales of the prior", "settings of them tried", "largest error of the median", "seconds to fit"):
        assert name in printed

    files = sorted(file.name for file in folder.iterdir())
    assert files == ["demo_hazard.png", "demo_survival.png"]
    for name in files:
        assert name in printed.replace("\n", "")
        picture = image.imread(folder / name)
        assert min(picture.shape[:2]) > 300
        assert picture.std() > 0.01, "an empty picture"
    assert pyplot.get_fignums() == open_before, "a figure was left open"


def test_one_person_of_each_group_is_shown():
    people = demo._people(lognormal_cohort(10))
    assert people["group"].tolist() == [0, 1]
    assert people.index.tolist() == ["group 0", "group 1"]
    assert (people.drop(columns="group") == 0).all(axis=None)


@pytest.mark.parametrize(
    ("values", "drawn"), [([0, 1], "▁█"), ([-7, 0, 7], "▁▅█"), ([2, 2, 2], "▁▁▁"), (range(8), "▁▂▃▄▅▆▇█")]
)
def test_spark(values, drawn):
    # 3.5 steps are rounded to the even neighbour, 4.
    assert demo._spark(np.array(values, dtype=float)) == drawn
