"""The page about the neutral comparison study: ranks of all learners, and differences to ours on each task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from neuralsurv.errors import InputError
from neuralsurv_bench.comparison import Ranking, bonferroni_dunn, rank_methods, score_frame
from neuralsurv_bench.figures import save_figure
from neuralsurv_bench.neutral.fold_jobs import DEFINITION, EXPERIMENT
from neuralsurv_bench.neutral.folder import CODED_FACTORS, COX, KAPLAN_MEIER, StudyFolder, Task
from neuralsurv_bench.neutral.rank_figure import draw_critical_differences
from neuralsurv_bench.neutral.reproduction import Reproduction, check_reproduction
from neuralsurv_bench.results import Metric, difference_text
from neuralsurv_bench.store import Record, Store
from neuralsurv_bench.table_text import Cell, Table, to_markdown
from neuralsurv_bench.tables import failure_list, run_conditions

OURS = "NeuralSurv"
# Their names are those of the columns of scores.csv.
STUDY_BRIER = Metric("isbs", "Brier score ↓", False)
STUDY_CONCORDANCE = Metric("harrell_c", "Harrell's C ↑", True)
_METRICS = (STUDY_BRIER, STUDY_CONCORDANCE)
_PICTURE = "neutral_ranks.png"
_LEVEL = 0.05


def write_page(store: Store, folder: StudyFolder, out: Path) -> list[Path]:
    """Write the page and its picture, and return the files.

    Parameters
    ----------
    store : Store
        Results of ours.
    folder : StudyFolder
        The copy of the study's repository.
    out : Path
        Where to write; made if it is not there.
    """
    records = store.records(EXPERIMENT)
    if not any(record.status == "finished" for record in records):
        raise InputError("no fold has been run yet; start with neuralsurv-bench run neutral.")
    reproduction = check_reproduction(folder)
    scores = folder.scores()
    frames = {metric: common_scores(scores, records, metric) for metric in _METRICS}
    rankings = {metric: rank_against_controls(frame, metric) for metric, frame in frames.items()}
    tasks = [folder.task(name) for name in frames[STUDY_BRIER].index.unique("cohort")]
    groups = dict(zip(scores["learner_id"], scores["learner_group"], strict=True))

    out.mkdir(parents=True, exist_ok=True)
    figure = draw_critical_differences(list(rankings.items()), {OURS: OURS, COX: f"Cox ({COX})"})
    picture = save_figure(figure, out / _PICTURE)
    page = out / "neutral.md"
    sections = [
        _introduction(records, tasks, scores, reproduction),
        _reading(rankings),
        to_markdown(rank_table_with_groups(rankings, groups)),
        *(to_markdown(task_table(frame, tasks, metric)) for metric, frame in frames.items()),
        _details(reproduction),
    ]
    page.write_text("\n".join(sections) + failure_list(records), encoding="utf-8")
    return [page, picture]


def common_scores(scores: pd.DataFrame, records: Sequence[Record], metric: Metric) -> pd.DataFrame:
    """Return one metric on the folds that ours has run: a line for each fold, a column for each learner and for ours.

    Of a learner that was tuned for several measures, the results are those with tuning for this metric.
    """
    ours = score_frame(records, metric.name, DEFINITION)
    tuned = scores[scores["tune_measure"].str.split(",").map(lambda measures: metric.name in measures)]
    stored = tuned.pivot(index=["task_id", "iteration"], columns="learner_id", values=metric.name)
    frame = stored.reindex(ours.index.droplevel("subsample")).set_index(ours.index)
    frame[OURS] = ours.iloc[:, 0]
    return frame.dropna(axis="columns", how="all")


def rank_against_controls(frame: pd.DataFrame, metric: Metric) -> Ranking:
    """Return mean ranks over tasks, with the critical difference of Bonferroni and Dunn in place of Nemenyi's."""
    ranking = rank_methods(frame, higher_is_better=bool(metric.higher_is_better), alpha=_LEVEL)
    return replace(ranking, critical_difference=bonferroni_dunn(len(ranking.methods), ranking.cohorts, _LEVEL))


def rank_table_with_groups(rankings: dict[Metric, Ranking], groups: dict[str, str]) -> Table:
    """Return the mean ranks by each metric, ordered by the first."""
    ranks = [dict(zip(ranking.methods, ranking.ranks, strict=True)) for ranking in rankings.values()]
    names = dict.fromkeys(name for column in ranks for name in column)
    rows = [
        [
            Cell(name),
            Cell(groups.get(name, "ours")),
            *(Cell(f"{column[name]:.2f}" if name in column else "–") for column in ranks),
        ]
        for name in names
    ]
    note = (
        "Learners have the names that they have in the stored results. A dash: the learner predicts no survival curve, "
        "or lacks a result on some task."
    )
    return Table("Mean ranks", ["learner", "kind", *(metric.title for metric in rankings)], rows, note)


def task_table(frame: pd.DataFrame, tasks: Sequence[Task], metric: Metric) -> Table:
    """Return ours on each task, and its differences to Cox, Kaplan–Meier and the best learner of the task."""
    rows = []
    for task in tasks:
        folds = frame.xs(task.name, level="cohort")
        others = folds.drop(columns=OURS).mean()
        best = str(others.idxmax() if metric.higher_is_better else others.idxmin())
        texts = [
            task.name,
            f"{len(task.time)}",
            f"{task.event.sum()}",
            f"{task.x.shape[1]}",
            f"{len(folds)} of {len(task.folds)}",
            f"{folds[OURS].mean():.4f}",
            *(_paired(folds[OURS] - folds[name]) for name in (COX, KAPLAN_MEIER, best)),
            best,
        ]
        rows.append([Cell(text) for text in texts])
    header = ["task", "rows", "events", "covariates", "folds", OURS, f"− {COX}", f"− {KAPLAN_MEIER}", "− best", "best"]
    note = (
        f"{OURS} minus the learner on the same folds: mean ± standard deviation over folds, which share rows. "
        f"{'Above' if metric.higher_is_better else 'Below'} 0, {OURS} is better. Best: the learner with the best mean "
        "on these test folds, chosen with hindsight."
    )
    return Table(f"{metric.title} by task", header, rows, note)


def _paired(differences: pd.Series) -> str:
    spread = f" ± {differences.std():.4f}" if len(differences) > 1 else ""
    return difference_text(float(differences.mean()), digits=4) + spread


def _introduction(
    records: Sequence[Record], tasks: Sequence[Task], scores: pd.DataFrame, reproduction: Reproduction
) -> str:
    finished = sum(record.status == "finished" for record in records)
    return f"""# A neutral benchmark

`NeuralSurv` on data and folds that others chose: those of a neutral comparison study of
{scores["learner_id"].nunique()} survival learners on low-dimensional data (Burk, Zobolas, Bischl, Bender, Wright and
Sonabend 2024, [arXiv:2406.04098](https://arxiv.org/abs/2406.04098)). Data, folds and the results of the other learners
are read from a copy of its repository,
[slds-lmu/paper_2023_survival_benchmark](https://github.com/slds-lmu/paper_2023_survival_benchmark); none of them is
part of ours.

`NeuralSurv` ran with its defaults, and nothing was tuned. **The other learners were not run again: their results are
quoted from the stored ones**, where the authors of the study had tuned those with hyperparameters for the metric shown.

**So far {finished} of {reproduction.folds} stored folds have been run, on {len(tasks)} of the {reproduction.tasks}
tasks in the copy** (the study has 34 tasks). All ranks and differences on this page are on these folds only.
{run_conditions(records)}

```
neuralsurv-bench run neutral --folder DIR     # DIR: a copy of the study's repository
neuralsurv-bench table neutral --folder DIR   # writes this page
```
"""


def _reading(rankings: dict[Metric, Ranking]) -> str:
    lines = [
        "## Ranks",
        "",
        f"![Mean ranks of all learners by Brier score and by Harrell's C, with critical differences]({_PICTURE})",
        "",
        "Learners are ranked on each task by their mean over folds, and the ranks are averaged over tasks. A learner "
        f"outside the interval around {OURS}, or around Cox, differs from it at the {100 * _LEVEL:.0f} % level "
        "(Bonferroni–Dunn, with one of the two as the control).",
        "",
    ]
    lines += [f"- {metric.title[:-2]}: {' '.join(_verdicts(ranking))}" for metric, ranking in rankings.items()]
    return "\n".join([*lines, ""])


def _verdicts(ranking: Ranking) -> Iterator[str]:
    """Yield, for each control, its place and the learners that it can be told apart from."""
    ranks = dict(zip(ranking.methods, ranking.ranks, strict=True))
    for control in (OURS, COX):
        away = {name: rank - ranks[control] for name, rank in ranks.items()}
        better = [name for name, difference in away.items() if difference < -ranking.critical_difference]
        worse = [name for name, difference in away.items() if difference > ranking.critical_difference]
        yield (
            f"{control} has mean rank {ranks[control]:.2f}, place {ranking.methods.index(control) + 1} of "
            f"{len(ranks)}; significantly better: {', '.join(better) or 'none'}; significantly worse: "
            f"{', '.join(worse) or 'none'}."
        )


def _details(reproduction: Reproduction) -> str:
    coded = "; ".join(f"{name}: {', '.join(columns)}" for name, columns in CODED_FACTORS.items())
    return f"""## How the scores are computed

- **Brier score**: `surv.brier` of mlr3proba with `p_max = 0.8` and `proper = FALSE`. The times are the different test
  times up to the first at which more than 80 % of the test rows are no longer at risk. At a time t, a row with observed
  time T counts S(t)² / G(T) if it had the event by t, and (1 − S(t))² / G(t) if T > t. The mean over rows is integrated
  by the trapezoidal rule and divided by the range of the times. G is the Kaplan–Meier estimate for censoring from the
  training rows: right-continuous, with events at the time of a censoring still at risk, and at least 0.001.
- **Check**: {reproduction.sentence()} The stored scores have
  six digits. Both commands stop if a score differs by more than 1e-5. The study reads its Kaplan–Meier curves at times
  that R has rounded to 15 digits, which matters on gbsg and metabric, by up to 4e-6; the check does the same.
- **Harrell's C** is that of the risk score (`predict`). An event is compared with strictly later times only;
  `neuralsurv.metrics.harrell_concordance` also compares it with a censoring at the same time.
- **The risk score** is the expected share of the time to the last training time that is lost: 1 minus the restricted
  mean survival time divided by it. It replaced the expected cumulative hazard at that time, which had a C of 0.33 on
  the first fold of check_times (by hand on 2026-11-18): where effects change with time, it orders rows differently from
  the curves.
- **Draws**: mean curves are those of 250 draws, since all test times are asked for.
- **whas** showed a limit of the model: a tenth of its people die within days, and the hazard of those days met the
  ceiling of 30 times the crude rate of events. The ceiling is 100 times that rate since 2026-11-18. It was raised after
  the folds of whas had been looked at; on 20 other cohorts it changes nothing on average.
- **Factors** are read as categories: columns of text, and columns of numbers where the stored results of the Cox model
  show that the study had a factor ({coded}).
  This was found by fitting unpenalised Cox models to the first two or three folds of 20 tasks (by hand on 2026-11-18,
  not by these commands). On 16 tasks they have the stored C-index to its last digit, which confirms the rule for ties.
  On cat_adoption, dataSTR, lung and tumor they do not, so the covariates of the study may differ from ours there.
"""
