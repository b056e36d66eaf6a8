"""A made-up folder in the layout of the study: four small tasks, three folds each, a few learners."""

import shutil

import numpy as np
import pandas as pd
import pytest

from neuralsurv_bench.neutral.folder import StudyFolder

TASKS = {"small": 30, "nwtco": 45, "wide": 48, "words": 60}
LEARNERS = {"KM": "Baseline", "CPH": "Classical", "RAN": "Trees", "SSVM": "Classical"}


def by_hand(train_time, train_event, test_time, test_event, survival):
    """Return the study's Brier score, written with loops; `survival` takes a time and the number of a test row."""

    def uncensored(moment):
        product = 1.0
        for time in sorted(set(train_time)):
            if time <= moment:
                at_risk = sum(other >= time for other in train_time)
                censored = sum(
                    other == time and not event for other, event in zip(train_time, train_event, strict=True)
                )
                product *= 1 - censored / at_risk
        return max(product, 0.001)

    times = []
    for time in sorted(set(test_time)):
        times.append(time)
        if sum(other < time for other in test_time) / len(test_time) > 0.8:
            break
    means = []
    for time in times:
        total = 0.0
        for row, (own, event) in enumerate(zip(test_time, test_event, strict=True)):
            if own > time:
                total += (1 - survival(time, row)) ** 2 / uncensored(time)
            elif event:
                total += survival(time, row) ** 2 / uncensored(own)
        means.append(total / len(test_time))
    area = sum((b - a) * (y + z) / 2 for a, b, y, z in zip(times, times[1:], means, means[1:], strict=False))
    return area / (times[-1] - times[0])


def kaplan_meier_by_hand(time, event):
    def survival(moment, row):
        product = 1.0
        for one in sorted(set(time)):
            if one <= moment:
                deaths = sum(other == one and seen for other, seen in zip(time, event, strict=True))
                product *= 1 - deaths / sum(other >= one for other in time)
        return product

    return survival


def data_of(name, rows, generator):
    x = pd.DataFrame({"age": generator.normal(60, 10, rows).round(1), "stage": generator.integers(1, 4, rows)})
    if name == "words":
        x["sex"] = generator.choice(["f", "m"], rows)
    if name == "wide":
        x["dose"] = generator.normal(size=rows)
    # Whole numbers: many ties, among events and censorings too.
    time = np.ceil(20 * generator.exponential(np.exp(-0.03 * (x["age"] - 60))))
    return x.assign(time=time, status=(generator.random(rows) < 0.65).astype(int))


@pytest.fixture(scope="session")
def made_up_study(tmp_path_factory):
    """Written once; tests that change it take `copied_study`."""
    path = tmp_path_factory.mktemp("study")
    for part in ("datasets", "resamplings/repeated_cv", "results/production"):
        (path / part).mkdir(parents=True)
    generator = np.random.default_rng(5)
    scores = []
    for name, rows in TASKS.items():
        table = data_of(name, rows, generator)
        table.to_csv(path / "datasets" / f"{name}.csv", index=False)
        part_of = generator.permutation(rows) % 3
        folds = []
        for iteration in (1, 2, 3):
            is_test = part_of == iteration - 1
            folds += [("test" if test else "train", iteration, k + 1) for k, test in enumerate(is_test)]
            train, test = table[~is_test], table[is_test]
            outcomes = [part[column].tolist() for part in (train, test) for column in ("time", "status")]
            brier = by_hand(*outcomes, kaplan_meier_by_hand(*outcomes[:2]))
            for place, (learner, group) in enumerate(LEARNERS.items()):
                both = learner in ("KM", "CPH")
                isbs, c = round(brier - 0.01 * place, 6), 0.5 + 0.05 * place
                if both:
                    scores.append((name, learner, iteration, c, isbs, "harrell_c,isbs", group))
                    continue
                scores.append((name, learner, iteration, c, None, "harrell_c", group))
                if learner != "SSVM":
                    scores.append((name, learner, iteration, None, isbs, "isbs", group))
        pd.DataFrame(folds, columns=["set", "iteration", "row_id"]).to_csv(
            path / "resamplings" / "repeated_cv" / f"{name}.csv", index=False
        )
    columns = ["task_id", "learner_id", "iteration", "harrell_c", "isbs", "tune_measure", "learner_group"]
    pd.DataFrame(scores, columns=columns).to_csv(path / "results" / "production" / "scores.csv", index=False)
    return path


@pytest.fixture
def brier_by_hand():
    return by_hand


@pytest.fixture
def study(made_up_study):
    return StudyFolder(made_up_study)


@pytest.fixture
def copied_study(made_up_study, tmp_path):
    return StudyFolder(shutil.copytree(made_up_study, tmp_path / "copy"))
