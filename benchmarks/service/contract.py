"""Schemathesis over the OpenAPI document of the service, longer than in the tests: no answer of 5xx, all as described.

    python benchmarks/service/contract.py --examples 1000

Ends with an error and the request that caused it if an answer is not as the document says.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as use_seed
from load import fit
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from neuralsurv.service.application import create_app
from neuralsurv.service.model_watch import ModelWatch

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def send(operation: Any, mode: GenerationMode, examples: int, seed: int) -> Counter[int]:
    """Send requests that schemathesis makes up, check the answers and count them by status."""
    seen: Counter[int] = Counter()

    @settings(max_examples=examples, deadline=None, database=None, phases=[Phase.generate, Phase.shrink],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def one(case: Any) -> None:
        seen[case.call_and_validate(checks=CHECKS, timeout=60).status_code] += 1

    use_seed(seed)(one)()
    return seen


def main() -> None:
    """Send requests to every route."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=1000, help="for valid and for invalid requests each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", type=Path, help="a model file; one of the veterans cohort if not given")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = chosen.model or Path(folder) / "veterans.neuralsurv"
        if chosen.model is None:
            fit(path, 40)
        contract = schemathesis.openapi.from_asgi("/openapi.json", create_app(ModelWatch(path)))
        for found in contract.get_all_operations():
            operation = found.ok()
            # Only /predict takes anything that could be wrong.
            modes = list(GenerationMode) if operation.method == "post" else [GenerationMode.POSITIVE]
            for mode in modes:
                counts = send(operation, mode, chosen.examples, chosen.seed)
                print(operation.label, mode.value, dict(sorted(counts.items())), flush=True)


if __name__ == "__main__":
    main()
