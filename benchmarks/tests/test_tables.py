import json
import re
from dataclasses import replace
from importlib.resources import files

import pytest
from scipy.stats import chi2

from neuralsurv_bench import published
from neuralsurv_bench.methods import neuralsurv_paper
from neuralsurv_bench.methods.interface import Method
from neuralsurv_bench.results import BRIER, CONCORDANCE, D_CALIBRATION, Summary, difference_text
from neuralsurv_bench.store import Key, Record, Store
from neuralsurv_bench.table_text import Cell, Table, mark_best, to_latex, to_markdown
from neuralsurv_bench.tables import provenance, write_tables

TWO = {"as-published": "with the handicap", "fair": "without"}
METHODS = {
    method.name: method
    for method in (
        *neuralsurv_paper.METHODS,
        Method("MTLR", "deep", None, TWO),
        Method("DQS", "deep", None, TWO),
        Method("Kaplan-Meier", "classical", None, {"fair": "one curve"}),
    )
}
ENVIRONMENT = {
    "python": "3.11.2",
    "packages": {"torch": "2.13.0", "pycox": None},
    "machine": {"system": "Linux", "processor": "Some CPU", "cores": 2, "memory_gib": 8},
}
DATE = "2026-11-15T10:00:00+00:00"


def record(experiment, cohort, method, variant="fair", fold=0, seed=0, setting="", scores=None, **others):
    key = Key(experiment, cohort, setting, fold, method, variant, seed)
    return Record(key, scores=scores or {}, environment=ENVIRONMENT, date=DATE, **others)


def lines_of(markdown, title):
    """Return the lines under the header of the table with a title, as lists of cells."""
    block = markdown.split(f"### {title}\n", 1)[1].split("###", 1)[0]
    return [line.strip("| ").split(" | ") for line in block.splitlines() if line.startswith("| ")][1:]


def rows_of(markdown, title):
    """Return the cells of each line by its first cell."""
    return {name: cells for name, *cells in lines_of(markdown, title)}


def write(tmp_path, records, **options):
    with Store(tmp_path / "results.sqlite") as store:
        for one in records:
            store.save(one)
        written = write_tables(store, METHODS, tmp_path / "tables", **options)
    return {path.name: path.read_text(encoding="utf-8") for path in written}


def central_records():
    found = []
    for fold, shift in enumerate((-0.02, -0.01, 0.0, 0.01, 0.02)):
        for method, variant, level in (
            ("MTLR", "as-published", 0.55),
            ("MTLR", "fair", 0.60),
            ("DQS", "as-published", 0.62),
            ("DQS", "fair", 0.64),
            ("NeuralSurv paper (16,)", "fair", 0.66),
        ):
            metrics = {"c_index": level + shift, "ibs": level / 3, "d_calibration_p": 0.2, "km_calibration": 0.01}
            ours = {"c_index": 0.99, "ibs": 0.99, "d_calibration_p": 0.99, "km_calibration": 0.99}
            scores = {"paper": metrics, "ours": ours}
            found.append(record("central", "COLON", method, variant, fold, scores=scores))
    return found


def test_ours_stands_beside_the_published_figure_and_the_difference(tmp_path):
    text = write(tmp_path, central_records())["central.md"]
    rows = rows_of(text, "COLON: C-index ↑ and IPCW IBS ↓")
    # Published for COLON: MTLR 0.562 and 0.298, DQS 0.635 and 0.246, NeuralSurv 0.671 and 0.218.
    assert rows["MTLR"][:4] == ["0.550 ± 0.016", "0.562", "−0.012", "0.600 ± 0.016"]
    assert rows["DQS"][:4] == ["*0.620 ± 0.016*", "*0.635*", "−0.015", "*0.640 ± 0.016*"]
    assert rows["NeuralSurv paper (16,)"][:4] == ["**0.660 ± 0.016**", "**0.671**", "−0.011", "**0.660 ± 0.016**"]
    # Lower is better in the Brier score.
    assert rows["MTLR"][4:] == ["**0.183 ± 0.000**", "0.298", "−0.115", "**0.200 ± 0.000**"]
    assert rows["NeuralSurv paper (16,)"][5] == "**0.218**"
    assert "NeuralSurv paper (16,16)" not in rows
    calibration = rows_of(text, "COLON: D-calibration p and KM-calibration ↓")
    assert calibration["MTLR"][:4] == ["0.200 ± 0.000 ✓", "0.000 ×", "+0.200", "0.200 ± 0.000 ✓"]


def test_latex_has_the_same_numbers_marked_its_own_way(tmp_path):
    text = write(tmp_path, central_records())["central.tex"]
    assert r"DQS & \underline{0.620 $\pm$ 0.016} & \underline{0.635} & $-$0.015 & \underline{0.640 $\pm$ 0.016}" in text
    assert r"NeuralSurv paper (16,) & \textbf{0.660 $\pm$ 0.016} & \textbf{0.671}" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    for block in re.findall(r"\\begin\{tabular\}\{(l r*|lr*)\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        lines = [line for line in block[1].splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", line)) + 1 for line in lines} == {len(block[0])}


def test_a_method_that_failed_in_some_folds_is_shown_as_failed_and_is_never_best(tmp_path):
    records = [
        replace(one, status="failed", scores={}, error="ValueError: NaN in the loss")
        if one.key.method == "NeuralSurv paper (16,)" and one.key.fold in (1, 3)
        else one
        for one in central_records()
    ]
    text = write(tmp_path, records)["central.md"]
    rows = rows_of(text, "COLON: C-index ↑ and IPCW IBS ↓")
    assert rows["NeuralSurv paper (16,)"][3] == "failed (2 of 5)"
    assert rows["DQS"][3] == "**0.640 ± 0.016**"
    assert "- NeuralSurv paper (16,) (fair), 2 jobs: ValueError: NaN in the loss" in text
    assert "25 jobs from 2026-11-15 to 2026-11-15, 2 of them failed." in text


def test_a_partial_run_says_how_many_folds_it_has(tmp_path):
    records = [one for one in central_records() if one.key.fold < 3]
    rows = rows_of(write(tmp_path, records)["central.md"], "COLON: C-index ↑ and IPCW IBS ↓")
    assert rows["MTLR"][:4] == ["0.540 ± 0.010 (3 of 5)", "0.562", "–", "0.590 ± 0.010 (3 of 5)"]


def test_a_method_with_some_folds_is_not_compared_with_those_that_have_all(tmp_path):
    records = [one for one in central_records() if one.key.fold < 3 or one.key.method != "NeuralSurv paper (16,)"]
    rows = rows_of(write(tmp_path, records)["central.md"], "COLON: C-index ↑ and IPCW IBS ↓")
    assert rows["NeuralSurv paper (16,)"][3] == "0.650 ± 0.010 (3 of 5)"
    assert rows["DQS"][3] == "**0.640 ± 0.016**"


def test_a_note_is_said_once_and_a_cohort_without_results_has_no_table(tmp_path):
    text = write(tmp_path, central_records())["central.md"]
    assert text.count("Mean ± standard deviation") == 1
    assert "### METABRIC" not in text


def test_a_difference_of_next_to_nothing_is_not_negative():
    assert difference_text(-0.0001) == "+0.000"
    assert difference_text(-0.0001, digits=4) == "−0.0001"
    assert difference_text(None) == "–"


def test_summaries_in_words():
    assert Summary((), 0).text(BRIER, 5) == "–"
    assert Summary((0.25,), 0).text(BRIER, 1) == "0.250"
    assert Summary((0.03,), 0).text(D_CALIBRATION, 1) == "0.030 ×"
    assert Summary((0.05,), 0).text(D_CALIBRATION, 1) == "0.050 ✓"
    assert Summary((0.6, 0.7), 1).text(CONCORDANCE, 5) == "failed (1 of 3)"
    assert Summary((0.6, 0.7), 1).mean is None


def test_provenance_names_versions_machine_and_source():
    text = provenance(central_records())
    assert "torch 2.13.0; Some CPU, 2 cores, 8 GiB, Linux." in text
    assert "pycox" not in text
    assert "NeurIPS 2025" in text


def test_prior_table_shows_q_of_the_first_fold_and_metrics_over_folds(tmp_path):
    phi = {"shape": 60.0, "rate": 78.789, "median": 0.757, "lower": 0.582, "upper": 0.966}
    records = [
        record(
            "prior",
            "COLON",
            "NeuralSurv paper (16,)",
            fold=fold,
            setting="prior 1-1",
            scores={
                "paper": {"c_index": 0.6 + 0.02 * fold, "ibs": 0.2, "d_calibration_p": 0.5, "km_calibration": 0.01}
            },
            details={"phi": {**phi, "shape": phi["shape"] + fold}},
        )
        for fold in range(5)
    ]
    text = write(tmp_path, records)["prior.md"]
    rows = {(name, prior): cells for name, prior, *cells in lines_of(text, "COLON: prior of φ")}
    first = rows["NeuralSurv paper (16,)", "Gamma(1, 1)"]
    assert first[:4] == ["60.000, 78.789", "0.757 [0.582, 0.966]", "60.877, 78.789", "0.768 [0.591, 0.978]"]
    assert first[4:6] == ["0.640 ± 0.032", "0.671"]
    other = rows["NeuralSurv paper (16,)", "Gamma(2, 2)"]
    assert other[:6] == ["–", "–", "45.865, 79.789", "0.571 [0.421, 0.753]", "–", "0.593"]


def test_explain_table_counts_collapsed_folds_beside_the_published_figures(tmp_path):
    records = [
        record(
            "explain",
            "SUPPORT",
            "NeuralSurv paper (16,)",
            fold=fold,
            setting="mode by EM",
            scores={
                "paper": {"c_index": 0.6, "ibs": 0.3 + 0.01 * fold, "d_calibration_p": 0.5, "km_calibration": 0.01}
            },
            details={"collapsed": fold < 2, "phi": {"shape": 50.0 + fold}},
        )
        for fold in range(3)
    ]
    text = write(tmp_path, records)["explain.md"]
    rows = {(name, change): cells for name, change, *cells in lines_of(text, "SUPPORT: one change at a time")}
    assert rows["NeuralSurv paper (16,)", "mode by EM"] == [
        "0.600 ± 0.000 (3 of 5)",
        "0.310 ± 0.010 (3 of 5)",
        "2 of 3",
        "50.0",
    ]
    assert rows["NeuralSurv paper (16,)", "mean curve"] == ["–", "–", "0 of 0", "–"]
    assert rows["NeuralSurv", "the paper"] == ["0.599", "0.333", "–", "–"]


def test_runtime_table_has_medians_and_ratios_to_ours(tmp_path):
    records = []
    for repetition, factor in enumerate((1.0, 50.0, 1.1)):
        for method, setting, seconds in (
            ("NeuralSurv paper", "N=125, layers 16-16", 4.0),
            ("MTLR", "N=125, layers 16-16", 2.0),
            ("Kaplan-Meier", "N=125", 0.01),
        ):
            records.append(
                record("runtime", "COLON", method, seed=repetition, setting=setting, fit_seconds=seconds * factor)
            )
    text = write(tmp_path, records)["runtime.md"]
    rows = {(name, line[0]): line[1:] for name, *line in lines_of(text, "N = 125")}
    # Published with two layers of 16: MTLR 0.118 minutes, NeuralSurv 22.673.
    assert rows["MTLR", "fair"][6:] == ["2.2", "0.5", "0.0052"]
    assert rows["MTLR", "as-published"] == ["–", "–", "0.0191", "–", "–", "0.00565", "–", "–", "0.0052"]
    assert rows["NeuralSurv paper", "fair"][6:] == ["4.4", "1", "1"]
    assert rows["Kaplan-Meier", "fair"][6:] == ["0.011", "0.0025", "–"]
    assert "### N = 25\n" not in text


def repeated_records(subsamples=3):
    found = []
    for cohort_number, cohort in enumerate(("COLON", "GBSG", "VLC")):
        for subsample in range(subsamples):
            for fold in range(5):
                wobble = 0.001 * ((7 * subsample + 3 * fold + cohort_number) % 5)
                for method, ibs in (("NeuralSurv paper (16,)", 0.18), ("MTLR", 0.25), ("Kaplan-Meier", 0.21)):
                    histogram = [5.0, 0, 0, 0, 5] if method == "MTLR" else [2.0] * 5
                    scores = {"ibs": ibs + wobble * ibs, "c_index": 1 - ibs, "d_calibration_histogram": histogram}
                    found.append(record("repeated", cohort, method, fold=fold, seed=subsample, scores={"ours": scores}))
    return found


def test_repeated_tables_compare_and_pool(tmp_path):
    text = write(tmp_path, repeated_records())["repeated.md"]
    means = rows_of(text, "IPCW IBS ↓: means")
    assert [cell.strip("*") for cell in means["MTLR"]] == ["0.2505"] * 4
    assert means["NeuralSurv paper (16,)"][-1].startswith("**")
    assert means["Kaplan-Meier"][-1].startswith("*0")
    differences = rows_of(text, "IPCW IBS ↓: paired differences")
    assert list(differences) == ["MTLR", "Kaplan-Meier"]
    assert re.fullmatch(r"\+0\.0701 \[\+0\.070\d, \+0\.070\d\] \*", differences["MTLR"][-1])
    ranks = rows_of(text, "IPCW IBS ↓: ranks")
    assert ranks == {"NeuralSurv paper (16,)": ["1.00"], "Kaplan-Meier": ["2.00"], "MTLR": ["3.00"]}
    pooled = rows_of(text, "D-calibration pooled over folds and subsamples")
    assert pooled["Kaplan-Meier"] == ["0.0000 (1)"] * 3
    # 15 folds: 75, 0, 0, 0, 75 of 150 rows where 30 are expected, so Pearson's statistic is 225.
    assert pooled["MTLR"] == [f"1.5000 ({chi2.sf(225, 4):.2g})"] * 3


def test_a_method_without_some_folds_is_not_the_best_of_the_means(tmp_path):
    gone = ("NeuralSurv paper (16,)", "GBSG", 1, 2)
    records = [
        one for one in repeated_records() if (one.key.method, one.key.cohort, one.key.seed, one.key.fold) != gone
    ]
    means = rows_of(write(tmp_path, records)["repeated.md"], "IPCW IBS ↓: means")
    ours = means["NeuralSurv paper (16,)"]
    assert [cell.startswith("**") for cell in ours] == [True, False, True, False]
    assert ours[1].endswith("(14 of 15)")
    assert means["Kaplan-Meier"][1].startswith("**")
    assert means["Kaplan-Meier"][3].startswith("**")


def test_where_a_method_has_few_folds_the_others_are_ranked_by_theirs_too(tmp_path):
    some = [one for one in repeated_records() if one.key.method != "MTLR" or one.key.fold == 0]
    more = [
        record("repeated", one.key.cohort, "DQS", fold=one.key.fold, seed=one.key.seed, scores={"ours": {"ibs": 0.3}})
        for one in some
        if one.key.method == "Kaplan-Meier"
    ]
    text = write(tmp_path, some + more)["repeated.md"]
    assert list(rows_of(text, "IPCW IBS ↓: ranks")) == ["NeuralSurv paper (16,)", "Kaplan-Meier", "MTLR", "DQS"]
    assert "by the 9 folds that all of these methods have" in text
    nearly = rows_of(text, "IPCW IBS ↓: ranks of the methods that have nearly all folds")
    assert list(nearly) == ["NeuralSurv paper (16,)", "Kaplan-Meier", "DQS"]
    assert "by the 45 folds" in text
    assert "Left out, with too few results: MTLR." in text


def test_another_reference_can_be_chosen(tmp_path):
    text = write(tmp_path, repeated_records(), reference="Kaplan-Meier")["repeated.md"]
    differences = rows_of(text, "IPCW IBS ↓: paired differences")
    assert list(differences) == ["NeuralSurv paper (16,)", "MTLR"]
    assert differences["NeuralSurv paper (16,)"][-1].startswith("−0.0301 [")


def test_with_little_to_compare_there_are_means_only(tmp_path):
    records = [one for one in repeated_records(1) if one.key.cohort == "COLON" and one.key.method == "MTLR"]
    text = write(tmp_path, records)["repeated.md"]
    assert "### IPCW IBS ↓: means" in text
    assert "ranks" not in text
    assert "paired differences" not in text


def test_experiments_without_results_have_no_files(tmp_path):
    assert set(write(tmp_path, central_records())) == {"central.md", "central.tex"}


def test_text_of_tables_is_escaped():
    table = Table("50 % of a_b", ["name", "x|y"], [[Cell("A & B"), Cell("1|2", "second")]], "p < 5 %")
    assert r"| A & B | *1\|2* |" in to_markdown(table)
    latex = to_latex(table)
    assert r"A \& B & \underline{1|2} \\" in latex
    assert r"\caption{50 \% of a\_b. p < 5 \%}" in latex


@pytest.mark.parametrize(("higher", "marks"), [(True, ["second", "", "best", ""]), (False, ["second", "best", "", ""])])
def test_best_and_second_best(higher, marks):
    cells = mark_best([0.6, 0.4, 0.7, None], ["a", "b", "c", "d"], higher_is_better=higher)
    assert [(cell.text, cell.mark) for cell in cells] == list(zip("abcd", marks, strict=True))


def test_ties_share_a_mark():
    assert [cell.mark for cell in mark_best([1.0, 1.0, 2.0], list("abc"), higher_is_better=False)] == [
        "best",
        "best",
        "second",
    ]


def test_published_figures_are_complete_and_agree_with_each_other():
    figures = json.loads(files("neuralsurv_bench").joinpath("published.json").read_text(encoding="utf-8"))
    shapes = {name: (len(figures[name]), len(published.rows(name))) for name in figures if name != "source"}
    assert shapes == {
        "central": (8, 13),
        "ablation": (3, 13),
        "synthetic": (4, 13),
        "classical": (8, 4),
        "runtime_minutes": (3, 13),
        "prior": (3, 3),
    }
    # The paper prints NeuralSurv's figures on three cohorts twice.
    for cohort in published.columns("prior"):
        for metric in ("c_index", "ibs", "d_calibration_p", "km_calibration"):
            here = published.figure("prior", cohort, "1-1", metric)
            assert here == published.figure("central", cohort, published.PAPERS_OWN, metric)
    # And a Gamma's median and interval follow from its shape and rate, up to their last digit.
    for cohort in published.columns("prior"):
        for prior in published.rows("prior"):
            shape, rate = (published.figure("prior", cohort, prior, name) for name in ("shape", "rate"))
            summary = neuralsurv_paper.gamma_summary(neuralsurv_paper.Gamma(shape, rate))
            for name in ("median", "lower", "upper"):
                assert summary[name] == pytest.approx(published.figure("prior", cohort, prior, name), abs=2e-3)


def test_a_figure_that_the_paper_does_not_print_is_none():
    assert published.figure("classical", "COLON", "SSVM", "ibs") is None
    assert published.figure("central", "COLON", "Kaplan-Meier", "ibs") is None
    assert published.figure("central", "COLON", "MTLR", "c_index") == 0.562
