import pytest

from neuralsurv.errors import InputError
from neuralsurv_bench.methods.neuralsurv_default import NAME
from neuralsurv_bench.neutral.page import OURS, STUDY_BRIER, STUDY_CONCORDANCE, common_scores, task_table, write_page
from neuralsurv_bench.store import Key, Record, Store
from neuralsurv_bench.table_text import to_markdown

ENVIRONMENT = {"python": "3.11", "packages": {"neuralsurv": "1.2.3"}, "machine": {"processor": "a processor"}}


def record(task, fold, isbs=0.1, harrell_c=0.9, status="finished"):
    return Record(
        Key("neutral", task, "", fold, NAME, "fair", 0),
        status=status,
        scores={"study": {"isbs": isbs, "harrell_c": harrell_c}} if status == "finished" else {},
        error="" if status == "finished" else "ValueError: broken on purpose",
        environment=ENVIRONMENT,
        date="2026-11-18T05:00:00+00:00",
    )


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "neutral.sqlite") as store:
        yield store


def test_only_folds_of_ours_are_compared_and_each_metric_has_its_own_tuning(study):
    records = [record("small", 1), record("small", 3), record("wide", 1), record("words", 1, status="failed")]
    frame = common_scores(study.scores(), records, STUDY_BRIER)
    assert list(frame.index.droplevel("subsample")) == [("small", 1), ("small", 3), ("wide", 1)]
    # SSVM has no survival curves.
    assert list(frame) == ["CPH", "KM", "RAN", OURS]
    assert frame.notna().all(axis=None)
    assert list(common_scores(study.scores(), records, STUDY_CONCORDANCE)) == ["CPH", "KM", "RAN", "SSVM", OURS]


def test_differences_by_task_have_their_spread_over_folds(study):
    records = [record("small", 1, harrell_c=0.6), record("small", 2, harrell_c=0.7), record("wide", 1, harrell_c=0.6)]
    frame = common_scores(study.scores(), records, STUDY_CONCORDANCE)
    text = to_markdown(task_table(frame, [study.task("small"), study.task("wide")], STUDY_CONCORDANCE))
    # CPH has 0.55, KM 0.5 and SSVM 0.65 in every fold.
    assert "| 2 of 3 | 0.6500 | +0.1000 ± 0.0707 | +0.1500 ± 0.0707 | +0.0000 ± 0.0707 | SSVM |" in text
    assert "| 1 of 3 | 0.6000 | +0.0500 | +0.1000 | −0.0500 | SSVM |" in text


def test_the_page_says_what_was_run_and_has_its_picture(study, store, tmp_path):
    for task in ("small", "wide", "words"):
        store.save(record(task, 1))
    store.save(record("nwtco", 1, status="failed"))
    page, picture = write_page(store, study, tmp_path / "docs")
    text = page.read_text(encoding="utf-8")
    assert "So far 3 of 12 stored folds have been run, on 3 of the 4\ntasks" in text
    assert "4 jobs from 2026-11-18 to 2026-11-18, 1 of them failed" in text
    assert "neuralsurv 1.2.3" in text
    assert "quoted from the stored ones" in text
    assert f"]({picture.name})" in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    # Best by C in every task, before SSVM; the Brier score has four learners.
    assert "- Harrell's C: NeuralSurv has mean rank 1.00, place 1 of 5; significantly better: none; " in text
    assert "| NeuralSurv | ours |" in text
    assert "ValueError: broken on purpose" in text


def test_without_results_there_is_no_page(study, store, tmp_path):
    with pytest.raises(InputError, match="no fold has been run yet; start with neuralsurv-bench run neutral"):
        write_page(store, study, tmp_path)
