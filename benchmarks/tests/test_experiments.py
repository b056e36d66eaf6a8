from dataclasses import replace

import pytest

from neuralsurv import PaperNeuralSurv
from neuralsurv.errors import InputError
from neuralsurv_bench import cohorts, published
from neuralsurv_bench.experiments import CHOOSING_SUBSAMPLES, EXPERIMENTS, SYNTHETIC, distinct_variants, jobs_of
from neuralsurv_bench.methods import neuralsurv_default, neuralsurv_paper
from neuralsurv_bench.methods.interface import Method


def never(split, settings):
    raise AssertionError("listing jobs must not fit anything")


TWO = {"as-published": "with the handicap", "fair": "without"}
SAME = {"as-published": "the same", "fair": "the same"}
METHODS = {
    method.name: method
    for method in (
        *neuralsurv_paper.METHODS,
        *neuralsurv_default.METHODS,
        Method("MTLR", "deep", never, TWO),
        Method("Sumo-Net", "deep", never, TWO, slow=True),
        Method("RSF", "classical", never, SAME),
        Method("Kaplan-Meier", "classical", never, {"fair": "one curve"}),
    )
}


def listed(name, **options):
    return jobs_of(EXPERIMENTS[name], METHODS, **options)


def seen(jobs, *parts):
    return {tuple(getattr(job.key, part) for part in parts) for job in jobs}


def test_no_job_is_listed_twice():
    jobs = [job for name in EXPERIMENTS for job in listed(name)]
    assert len({job.key for job in jobs}) == len(jobs)
    assert {job.key.experiment for job in jobs} == set(EXPERIMENTS)


def test_central_has_both_variants_of_deep_methods_on_all_folds_and_ours_once():
    jobs = listed("central")
    assert len(jobs) == 8 * 5 * (2 + 2 + 1 + 1 + 1)
    assert seen(jobs, "cohort") == {(name,) for name in cohorts.NAMES}
    assert seen(jobs, "method", "variant") == {
        ("MTLR", "as-published"),
        ("MTLR", "fair"),
        ("Sumo-Net", "as-published"),
        ("Sumo-Net", "fair"),
        ("NeuralSurv paper (16,)", "fair"),
        ("NeuralSurv paper (16,16)", "fair"),
        ("NeuralSurv default", "fair"),
    }
    assert {job.rows for job in jobs} == {125}


def test_classical_has_the_classical_methods():
    assert seen(listed("classical"), "method", "variant") == {("RSF", "fair"), ("Kaplan-Meier", "fair")}


def test_ablation_has_250_rows_of_the_three_published_cohorts():
    jobs = listed("ablation")
    assert seen(jobs, "cohort") == {("COLON",), ("METABRIC",), ("GBSG",)}
    assert {job.rows for job in jobs} == {250}


def test_synthetic_has_the_four_sizes():
    jobs = listed("synthetic")
    assert {(job.key.setting, job.rows) for job in jobs} == {("N=25", 25), ("N=50", 50), ("N=100", 100), ("N=150", 150)}
    assert seen(jobs, "cohort") == {(SYNTHETIC,)}


def test_explain_changes_one_thing_of_the_paper_preset():
    jobs = listed("explain")
    assert {job.change for job in jobs} == set(neuralsurv_paper.CHANGES)
    assert all(job.key.setting == job.change for job in jobs)
    assert {job.hidden for job in jobs} == set(neuralsurv_paper.LAYERS)
    assert listed("explain", only_methods=["MTLR"]) == []


def test_every_change_of_the_paper_preset_is_one_that_the_estimator_knows():
    known = set(PaperNeuralSurv().get_params()) | {"curve", "rows"}
    for options in neuralsurv_paper.CHANGES.values():
        assert set(options) <= known


def test_explain_changes_fewer_things_of_two_layers():
    jobs = listed("explain")
    of_one, of_two = ({job.change for job in jobs if len(job.hidden) == layers} for layers in (1, 2))
    assert of_one == set(neuralsurv_paper.CHANGES)
    assert of_two == set(neuralsurv_paper.CHANGES_OF_TWO_LAYERS) < of_one


def test_prior_varies_the_prior_of_the_paper_preset():
    jobs = listed("prior")
    assert {(job.key.setting, job.phi_prior) for job in jobs} == {
        ("prior 1-1", (1.0, 1.0)),
        ("prior 2-2", (2.0, 2.0)),
        ("prior 0.5-0.5", (0.5, 0.5)),
    }
    assert {(job.key.method, job.hidden) for job in jobs} == {
        ("NeuralSurv paper (16,)", (16,)),
        ("NeuralSurv paper (16,16)", (16, 16)),
    }
    assert len(jobs) == 5 * 3 * 2 * 3
    assert listed("prior", only_methods=["MTLR"]) == []


def test_runtime_takes_turns_over_methods_and_repeats():
    jobs = listed("runtime")
    networks = [job for job in jobs if job.key.method in ("MTLR", "Sumo-Net", "NeuralSurv paper", "NeuralSurv default")]
    assert {(job.rows, job.hidden) for job in networks} == {
        (rows, hidden) for rows in (25, 125, 250) for hidden in ((16,), (6, 6), (16, 16))
    }
    # Two deep methods in two variants each, and our two presets.
    assert len(networks) == 6 * 9 * 3
    assert len(jobs) - len(networks) == 3 * 3 * 2
    assert EXPERIMENTS["runtime"].alone
    # A whole round over everything is over before the next begins.
    repetitions = [job.key.seed for job in jobs]
    assert repetitions == sorted(repetitions)
    assert [(job.key.method, job.key.variant) for job in jobs[:8]] == [
        ("RSF", "fair"),
        ("Kaplan-Meier", "fair"),
        ("NeuralSurv paper", "fair"),
        ("NeuralSurv default", "fair"),
        ("MTLR", "as-published"),
        ("MTLR", "fair"),
        ("Sumo-Net", "as-published"),
        ("Sumo-Net", "fair"),
    ]


def test_repeated_goes_subsample_by_subsample_without_slow_methods():
    jobs = listed("repeated")
    assert len(jobs) == 20 * 5 * 8 * 5
    assert {"Sumo-Net", "NeuralSurv paper (16,16)"}.isdisjoint({job.key.method for job in jobs})
    assert seen(jobs, "variant") == {("fair",)}
    first = jobs[: 5 * 8 * 5]
    assert len({job.key.seed for job in first}) == 1
    one_fold = jobs[: 8 * 5]
    assert len(seen(one_fold, "cohort", "method")) == 8 * 5


def test_repeated_has_no_subsample_that_the_preset_was_chosen_on():
    assert {job.key.seed for job in listed("repeated")}.isdisjoint(CHOOSING_SUBSAMPLES)


def test_a_slow_method_that_is_named_is_not_left_out():
    assert seen(listed("repeated", only_methods=["Sumo-Net"]), "method") == {("Sumo-Net",)}


def test_slow_methods_come_after_all_others():
    slow = [METHODS[job.key.method].slow for job in listed("central")]
    assert slow == sorted(slow)
    assert True in slow


def test_all_cohorts_come_before_the_next_method():
    assert [job.key.cohort for job in listed("central")[:8]] == list(cohorts.NAMES)
    folds = [job.key.fold for job in listed("central", only_methods=["MTLR"])]
    assert folds == sorted(folds)


def test_only_the_cohorts_and_methods_asked_for():
    jobs = listed("central", only_cohorts=["GBSG", "VLC"], only_methods=["MTLR"])
    assert seen(jobs, "cohort", "method") == {("GBSG", "MTLR"), ("VLC", "MTLR")}


def test_an_unknown_method_is_refused():
    with pytest.raises(InputError, match=r"there is no method 'MLTR'; the 7 there are: .*MTLR"):
        listed("central", only_methods=["MLTR"])


def test_an_unknown_cohort_is_refused():
    with pytest.raises(InputError, match=r"there is no cohort 'colon'; the 9 there are: COLON, .*, synthetic"):
        listed("central", only_cohorts=["colon"])


def test_variants_with_one_sentence_are_one():
    assert distinct_variants(METHODS["RSF"]) == ("fair",)
    assert distinct_variants(METHODS["MTLR"]) == ("as-published", "fair")
    assert distinct_variants(replace(METHODS["RSF"], variants={"as-published": "only"})) == ("as-published",)


def test_the_published_cohorts_and_methods_are_known():
    for table in ("central", "ablation", "classical", "prior"):
        assert set(published.columns(table)) <= set(cohorts.NAMES)
    assert set(published.columns("central")) == set(cohorts.NAMES)
    assert published.rows("central")[-1] == published.PAPERS_OWN


def test_ingredients_changes_one_thing_of_the_default_preset_on_subsamples_that_repeated_does_not_have():
    jobs = listed("ingredients")
    assert {job.change for job in jobs} == set(neuralsurv_default.CHANGES)
    assert all(job.key.setting == job.change for job in jobs)
    assert len(jobs) == len(neuralsurv_default.CHANGES) * 3 * 5 * 8
    assert {job.key.seed for job in jobs}.isdisjoint({job.key.seed for job in listed("repeated")})
    assert listed("ingredients", only_methods=["MTLR"]) == []


def test_every_change_of_the_default_model_changes_its_settings():
    def settings(**changed):
        return neuralsurv_default.AblatedNeuralSurv(**changed)._settings()

    for options in neuralsurv_default.CHANGES.values():
        assert options == {} or settings(**options) != settings()


def test_full_has_every_row_of_three_cohorts():
    jobs = listed("full")
    assert seen(jobs, "cohort") == {("METABRIC",), ("GBSG",), ("SUPPORT",)}
    assert seen(jobs, "variant") == {("fair",)}
    assert ("Sumo-Net",) not in seen(jobs, "method")
    assert len(jobs) == 3 * 5 * 5
