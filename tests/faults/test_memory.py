"""Work that needs more memory than there is is refused before it takes any, with a sentence; nothing is lost."""

from pathlib import Path

import numpy as np
import pytest
import torch

from faults.children import in_child, needs_fork
from neuralsurv import memory
from neuralsurv.data.cohort import Cohort
from neuralsurv.errors import InputError, NeuralSurvError, NotEnoughMemoryError
from neuralsurv.inference.default.footprint import default_bytes
from neuralsurv.inference.paper.footprint import count_points, paper_bytes
from neuralsurv.inference.paper.settings import PaperSettings
from neuralsurv.inference.stream.fit import StreamFitter
from neuralsurv.model.points import build_points
from neuralsurv.model.quadrature import Trapezoid
from small_cohort import quick_default, quick_model, small_cohort

resource = pytest.importorskip("resource", reason="limits of processes are POSIX's")

GIB = 2**30


class TestAvailable:
    """What the system says, in a made-up file system."""

    @pytest.fixture
    def root(self, tmp_path, monkeypatch):
        monkeypatch.delenv(memory.VARIABLE, raising=False)

        def lay_out(**files):
            for name, text in files.items():
                path = tmp_path / name.replace("__", "/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return tmp_path

        return lay_out

    MEMINFO = "MemTotal: 8 kB\nMemAvailable:  3145728 kB\nSwapFree: 1048576 kB\n"

    def files(self, **more):
        return {"proc__meminfo": self.MEMINFO, **more}

    def test_nothing_known(self, tmp_path, monkeypatch):
        monkeypatch.delenv(memory.VARIABLE, raising=False)
        assert memory.available(tmp_path) is None

    def test_of_the_machine(self, root):
        assert memory.available(root(**self.files())) == 4 * GIB

    def test_meminfo_of_an_old_kernel(self, root):
        assert memory.available(root(proc__meminfo="MemTotal: 8 kB\nMemFree: 4 kB\n")) is None

    def group(self, folder, limit, used, stat="inactive_file 0"):
        base = f"sys__fs__cgroup{folder}__memory."
        return {base + "max": f"{limit}\n", base + "current": f"{used}\n", base + "stat": f"anon 7\n{stat}\n"}

    def put(self, root, files, groups):
        made = root(proc__meminfo=files["proc__meminfo"])
        for name, text in {"proc__self__cgroup": "0::/job/task\n", **groups}.items():
            path = made / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return made

    def test_of_a_group_with_its_cache(self, root):
        groups = self.group("__job__task", 2 * GIB, GIB, f"inactive_file {GIB // 2}")
        assert memory.available(self.put(root, self.files(), groups)) == 1.5 * GIB

    def test_of_a_group_above(self, root):
        groups = self.group("__job__task", "max", GIB) | self.group("__job", 3 * GIB, GIB)
        assert memory.available(self.put(root, self.files(), groups)) == 2 * GIB

    def test_of_a_container_that_sees_its_own_root_only(self, root):
        assert memory.available(self.put(root, self.files(), self.group("", GIB, 0))) == GIB

    def test_a_group_beyond_its_limit(self, root):
        assert memory.available(self.put(root, self.files(), self.group("", GIB, 2 * GIB))) == 0

    def test_of_a_group_of_the_first_version(self, root):
        base = "sys__fs__cgroup__memory__job__memory."
        groups = {
            "proc__self__cgroup": "5:cpu,cpuacct:/other\n4:memory,hugetlb:/job\nnonsense\n",
            base + "limit_in_bytes": f"{GIB}",
            base + "usage_in_bytes": f"{GIB // 2}",
            base + "stat": f"inactive_file 1\ntotal_inactive_file {GIB // 4}\n",
        }
        assert memory.available(self.put(root, self.files(), groups)) == 0.75 * GIB

    def test_no_limit_of_the_first_version(self, root):
        base = "sys__fs__cgroup__memory__memory."
        groups = {
            "proc__self__cgroup": "4:memory:/\n",
            base + "limit_in_bytes": "9223372036854771712",
            base + "usage_in_bytes": "7",
        }
        assert memory.available(self.put(root, self.files(), groups)) == 4 * GIB

    def test_of_the_process(self, root, monkeypatch):
        limits = {resource.RLIMIT_AS: 3 * GIB, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
        monkeypatch.setattr(resource, "getrlimit", lambda which: (limits[which], resource.RLIM_INFINITY))
        pages = GIB // resource.getpagesize()
        made = root(**self.files())
        (made / "proc/self").mkdir()
        (made / "proc/self/statm").write_text(f"{pages} 1 1 1 0 {pages // 2} 0\n", encoding="utf-8")
        assert memory.available(made) == 2 * GIB
        limits[resource.RLIMIT_DATA] = GIB
        assert memory.available(made) == 0.5 * GIB

    def test_of_the_environment(self, root, monkeypatch):
        monkeypatch.setenv(memory.VARIABLE, "0.25")
        assert memory.available(root(**self.files())) == GIB / 4

    @pytest.mark.parametrize("value", ["much", "-1", "nan", ""])
    def test_an_environment_that_makes_no_sense(self, monkeypatch, value):
        monkeypatch.setenv(memory.VARIABLE, value)
        with pytest.raises(InputError, match=rf"NEURALSURV_MEMORY_GIB='{value}' must be a number of GiB, 0 or more"):
            memory.available()

    def test_here(self, monkeypatch):
        monkeypatch.delenv(memory.VARIABLE, raising=False)
        there = memory.available()
        assert there is None or there > 0


class TestRequire:
    def test_message(self, monkeypatch):
        monkeypatch.setenv(memory.VARIABLE, "0.5")
        message = (
            r"this work needs about 2\.0 GiB of memory, and 512 MiB are available\. Do less\. If less is needed than "
            r"that, set the environment variable NEURALSURV_MEMORY_GIB"
        )
        with pytest.raises(NotEnoughMemoryError, match=message) as caught:
            memory.require(2 * GIB, "this work", "Do less.")
        assert isinstance(caught.value, MemoryError)
        assert isinstance(caught.value, NeuralSurvError)
        memory.require(GIB / 2, "this work", "Do less.")

    def test_small_work_and_unknown_memory_are_never_refused(self, monkeypatch):
        monkeypatch.setenv(memory.VARIABLE, "0")
        memory.require(2**20, "this work", "Do less.")
        monkeypatch.setattr(memory, "available", lambda: None)
        memory.require(1e30, "this work", "Do less.")

    def test_an_allocation_that_fails_is_explained(self):
        for allocate in (lambda: torch.empty(2**57), lambda: np.empty(2**57)):
            with (
                pytest.raises(NotEnoughMemoryError, match=r"this work ran out of memory: .*llocate.* Do less\."),
                memory.explained("this work", "Do less."),
            ):
                allocate()

    def test_other_errors_are_left_alone(self):
        refusal = NotEnoughMemoryError("said before")
        for error in (RuntimeError("something else"), ValueError("not enough memory"), refusal):
            with pytest.raises(type(error)) as caught, memory.explained("this work", "Do less."):
                raise error
            assert caught.value is error


class TestFootprint:
    def test_points_are_counted_as_they_are_laid_out(self):
        rng = np.random.default_rng(0)
        time = rng.uniform(0.01, 1, size=200)
        cohort = Cohort.of(time, time > 0.5, time * 0.3, np.ones(200), np.zeros((200, 1)))
        laid_out = len(build_points(cohort, Trapezoid(200), 1.0))
        assert laid_out <= count_points(cohort, PaperSettings()) <= 1.02 * laid_out
        legendre = PaperSettings(quadrature="gauss-legendre", quadrature_points=7)
        assert count_points(cohort, legendre) == 7 * 200 + int((time > 0.5).sum())

    def test_estimates_grow_with_every_size(self):
        sizes = {"points": 10**5, "covariates": 10, "linear": 80, "hidden": (64,), "weights": 850, "kept": 200}
        usual = default_bytes(**sizes)
        for name, more in {"points": 10**6, "covariates": 99, "linear": 99, "hidden": (999,), "weights": 10**6}.items():
            assert default_bytes(**sizes | {name: more}) > usual, name
        limits = {"memory": 3 * GIB}
        usual = paper_bytes(10**5, 10, PaperSettings(), **limits)
        assert paper_bytes(10**6, 10, PaperSettings(), **limits) > usual
        assert paper_bytes(10**5, 100, PaperSettings(), **limits) > usual
        # The solvers' own matrices: m×m, and P×P.
        wide = PaperSettings(hidden=(200, 200), solver="primal")
        assert paper_bytes(10**5, 10, wide, **limits) > 8 * 3 * (200 * 200) ** 2
        assert paper_bytes(10**5, 10, PaperSettings(solver="dual"), **limits) > 8 * 4 * (10**5) ** 2


@pytest.fixture(scope="module")
def model():
    cohort = small_cohort()
    return quick_default().fit(cohort.x, cohort.y)


def many_rows(n=4000, columns=3):
    rng = np.random.default_rng(1)
    return rng.normal(size=(n, columns)), (rng.uniform(0.1, 1, size=n), rng.random(n) < 0.5)


@pytest.mark.parametrize("estimator", [quick_default(), quick_model()], ids=["default", "paper"])
def test_a_fit_is_refused_and_the_last_one_stays(estimator, monkeypatch):
    cohort = small_cohort()
    estimator.fit(cohort.x, cohort.y)
    before = estimator.predict(cohort.x)
    monkeypatch.setenv(memory.VARIABLE, "0.03")
    advice = "Use NeuralSurv.fit_stream.*smaller network"
    with pytest.raises(
        NotEnoughMemoryError, match=r"this fit of \d+ points \(4000 different rows .*needs about .*" + advice
    ):
        estimator.fit(*many_rows())
    assert np.array_equal(estimator.predict(cohort.x), before)
    assert estimator.training_["rows"] == 40


def test_rows_that_are_the_same_need_no_memory(monkeypatch):
    cohort = small_cohort()
    monkeypatch.setenv(memory.VARIABLE, "0.03")
    many = np.repeat(np.arange(40), 100)
    fitted = quick_default().fit(cohort.x.iloc[many], cohort.y[many], sample_weight=np.full(4000, 0.01))
    assert fitted.training_["rows"] == 4000


def test_a_streamed_fit_says_what_to_do(monkeypatch):
    def fail(*_):
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr(StreamFitter, "fit", fail)
    message = r"the fit ran out of memory: Unable to allocate 9 GiB\. Use a smaller network .*fewer directions"
    with pytest.raises(NotEnoughMemoryError, match=message):
        quick_default().fit_stream([small_cohort().frame()], time="years", event="died")


def test_a_table_is_refused_before_it_is_encoded(monkeypatch):
    X, y = many_rows(4000, 200)
    monkeypatch.setenv(memory.VARIABLE, "0.03")
    with pytest.raises(NotEnoughMemoryError, match=r"a table of 4000 rows and 200 encoded columns needs about 50 MiB"):
        quick_default().fit(X, y)


def repeated(times):
    return small_cohort().x.iloc[np.tile(np.arange(40), times)]


class TestPredictions:
    def test_all_draws(self, model, monkeypatch):
        curves = model.predict_survival(repeated(20), np.linspace(0.1, 1, 90))
        monkeypatch.setenv(memory.VARIABLE, "0.01")
        message = r"all 40 draws for 800 people at 90 columns needs about 22 MiB.*Ask for \.mean or \.interval"
        with pytest.raises(NotEnoughMemoryError, match=message):
            _ = curves.draws

    def test_summaries(self, model, monkeypatch):
        curves = model.predict_survival(repeated(1000), np.linspace(0.1, 1, 30))
        monkeypatch.setenv(memory.VARIABLE, "0.01")
        message = r"a prediction of 40000 people at 30 columns needs about 18 MiB.*Predict fewer people or times"
        with pytest.raises(NotEnoughMemoryError, match=message):
            _ = curves.mean

    def test_draws_of_the_weights(self, model, monkeypatch):
        monkeypatch.setenv(memory.VARIABLE, "0.01")
        monkeypatch.setattr(model, "draws", 10**6)
        message = r"a prediction from 1000000 draws of \d+ weights needs about .* Use fewer draws"
        with pytest.raises(NotEnoughMemoryError, match=message):
            model.predict(small_cohort().x)


@needs_fork
def test_under_a_limit_of_the_system_nothing_is_taken(monkeypatch):
    monkeypatch.delenv(memory.VARIABLE, raising=False)
    rows = 30_000
    X, y = many_rows(rows)

    def peak():
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

    def work():
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**28, resource.RLIM_INFINITY))
        estimator = quick_default()
        before = peak()
        try:
            estimator.fit(X, y)
        except NotEnoughMemoryError as error:
            return str(error), peak() - before
        return "", peak() - before

    if not Path("/proc/self/statm").exists():
        pytest.skip("this system does not tell how much memory a process has")
    message, growth = in_child(work)
    assert "this fit of" in message
    assert "MiB are available" in message
    # Twelve nodes a row with the columns of the linear path alone, which is the least that it would have held.
    assert growth < 8 * 12 * rows * 17 / 2**20, "the fit took memory before it was refused"
