import numpy as np
import pytest

from neuralsurv_bench.comparison import ALL_COHORTS, PairedDifference, Ranking
from neuralsurv_bench.experiments import SYNTHETIC
from neuralsurv_bench.figures import best_others, draw_differences, draw_ranks, draw_synthetic, write_figures
from neuralsurv_bench.methods import neuralsurv_paper
from neuralsurv_bench.methods.interface import Method
from neuralsurv_bench.results import BRIER, CONCORDANCE, Results
from neuralsurv_bench.store import Key, Record, Store

OURS = "NeuralSurv paper (16,)"
METHODS = {
    method.name: method
    for method in (
        *neuralsurv_paper.METHODS,
        Method("MTLR", "deep", None),
        Method("DQS", "deep", None),
        Method("PMF", "deep", None),
        Method("Kaplan-Meier", "classical", None),
    )
}
TIMES = [0.0, 1.0, 2.0]
LEVELS = {OURS: 0.10, "NeuralSurv paper (16,16)": 0.05, "MTLR": 0.4, "DQS": 0.2, "PMF": 0.3, "Kaplan-Meier": 0.5}


def curves(level, band):
    groups = []
    for truth in (0.5, 0.8):
        group = {"people": 50, "truth": [1.0, truth, truth**2], "mean": [1.0, truth - level, truth**2 - level]}
        if band:
            group |= {"lower": [1.0, truth - 0.2, 0.1], "upper": [1.0, truth + 0.1, 0.9]}
        groups.append(group)
    return {"times": TIMES, "groups": groups}


def synthetic_records():
    return [
        Record(
            Key("synthetic", SYNTHETIC, f"N={size}", 0, method, "fair", 0),
            scores={"paper": {"ibs": -level if (size, method) == (150, "MTLR") else level}},
            details={"curves": curves(level, band=method == OURS)},
        )
        for size in (25, 50, 100, 150)
        for method, level in LEVELS.items()
    ]


@pytest.fixture(autouse=True)
def close_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def test_the_two_best_others_are_those_with_the_lowest_ibs_and_none_of_ours():
    results = Results(synthetic_records(), METHODS)
    assert [(method.name, ibs) for method, ibs in best_others(results, OURS, "N=25")] == [("DQS", 0.2), ("PMF", 0.3)]
    assert [method.name for method, _ in best_others(results, OURS, "N=150")] == ["MTLR", "DQS"]


def test_synthetic_figure_has_a_panel_a_size_with_truth_ours_band_and_two_others():
    figure = draw_synthetic(synthetic_records(), METHODS, OURS)
    panels = figure.get_axes()
    assert [ax.get_title() for ax in panels] == ["N = 25", "N = 50", "N = 100", "N = 150"]
    labels = [text.get_text() for text in panels[0].get_legend().get_texts()]
    assert labels == [f"{OURS}, 0.100", "DQS, 0.200", "PMF, 0.300"]
    drawn = [(line.get_color(), tuple(line.get_ydata())) for line in panels[0].get_lines()]
    assert ("black", (1.0, 0.5, 0.25)) in drawn
    assert ("black", (1.0, 0.8, pytest.approx(0.64))) in drawn
    assert len(drawn) == 2 * (1 + 1 + 2)
    # The band of each group: both ends are corners of its outline.
    outlines = [path.vertices for band in panels[0].collections for path in band.get_paths()]
    assert len(outlines) == 2
    for outline, truth in zip(outlines, (0.5, 0.8), strict=True):
        heights = outline[np.isclose(outline[:, 0], 1.0), 1]
        assert heights.min() == pytest.approx(truth - 0.2)
        assert heights.max() == pytest.approx(truth + 0.1)


def test_a_size_that_has_not_run_is_an_empty_panel():
    records = [record for record in synthetic_records() if record.key.setting != "N=50"]
    panels = draw_synthetic(records, METHODS, OURS).get_axes()
    assert len(panels[1].get_lines()) == 0
    assert len(panels[2].get_lines()) == 8


def test_ranks_are_drawn_where_they_are_with_bars_over_those_alike():
    ranking = Ranking(("a", "b", "c"), (1.2, 1.8, 3.0), 1.0, 0.01, 8, (), 40)
    (ax,) = draw_ranks(ranking, BRIER).get_axes()
    points = [line.get_xdata()[0] for line in ax.get_lines() if line.get_marker() == "o"]
    assert points == [1.2, 1.8, 3.0]
    bars = [tuple(line.get_xdata()) for line in ax.get_lines() if line.get_linewidth() == 3]
    assert bars == [(1.2, 1.8)]
    scale = [tuple(line.get_xdata()) for line in ax.get_lines() if line.get_linewidth() == 2]
    assert scale == [(1, 2.0)]
    assert [text.get_text() for text in ax.texts][:3] == [" a, 1.20", " b, 1.80", " c, 3.00"]


@pytest.mark.parametrize(("metric", "order"), [(BRIER, ["worse", "better"]), (CONCORDANCE, ["better", "worse"])])
def test_differences_are_drawn_with_their_intervals_the_best_on_top(metric, order):
    differences = [
        PairedDifference("COLON", "better", 9.0, 9.0, 9.0, 20, 100),
        PairedDifference(ALL_COHORTS, "better", -0.1, -0.2, 0.0, 20, 100),
        PairedDifference(ALL_COHORTS, "worse", 0.3, float("nan"), float("nan"), 2, 10),
    ]
    (ax,) = draw_differences(differences, metric, "ours").get_axes()
    assert [label.get_text() for label in ax.get_yticklabels()] == order
    segments = [tuple(line.get_xdata()) for line in ax.get_lines() if len(line.get_xdata()) == 2]
    assert (-0.2, 0.0) in segments
    assert 9.0 not in [value for line in ax.get_lines() for value in line.get_xdata()]


def repeated_records():
    for cohort in ("COLON", "GBSG"):
        for subsample in range(3):
            for method, level in LEVELS.items():
                scores = {"ibs": level + 0.01 * subsample, "c_index": 1 - level}
                yield Record(Key("repeated", cohort, "", 0, method, "fair", subsample), scores={"ours": scores})


def test_figures_are_written_for_what_has_run(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        assert write_figures(store, METHODS, tmp_path / "figures") == []
        for record in [*synthetic_records()[: len(LEVELS)], *repeated_records()]:
            store.save(record)
        paths = write_figures(store, METHODS, tmp_path / "figures")
    assert [path.name for path in paths] == [
        "synthetic.png",
        "ranks_ibs.png",
        "differences_ibs.png",
        "ranks_c_index.png",
        "differences_c_index.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
