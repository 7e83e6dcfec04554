#!/usr/bin/env python3
"""The differences between Levin and Lightning that the comparison with random runs knows, each by the row of
docs/differences.md that documents it. lightning_models.py makes Lightning behave as the row says.

usage: documented_differences.py      fails if a row is missing, or a name in lightning_models.py has no row
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent

# name in lightning_models.py -> first cell of the row
ROWS = {
    "tail window": "last window of an epoch with fewer batches than `accumulate_grad_batches`",
    "resuming": "resuming",
    "scheduler frequency": "`frequency` of a scheduler with `interval: step`",
    "save at the end": "a run that reaches `max_steps` before its first save point",
    "stale monitor": "a save that is due when `monitor` has no value for the current weights",
    "stale judgement": "`EarlyStopping`, `ReduceLROnPlateau` in epochs or steps in which their metric was not measured",
    "newest last": "`save_last`",
    "state of a checkpoint": "a save in `on_train_batch_end`, `on_validation_end`, `on_train_epoch_end`",
    "all checkpoints": "`save_top_k: -1` without `monitor`, and a `filename` that repeats",
    "a file of weights alone": "callbacks' `on_load_checkpoint` for a file of weights alone",
    "least steps": "`min_steps` without `min_epochs`",
    "updates in bfloat16": "an optimizer's update of `bf16-true` weights",  # compared with more tolerance
    "line search of LBFGS": "`max_eval` of `LBFGS` with `line_search_fn`",
    "a metric of each rank": "an epoch metric without `sync_dist`",
    "no step yet": "the row of an epoch that a stop ends before its first optimizer step",
    "without validation":
        "`EarlyStopping` and `ModelCheckpoint` without validation and with `check_val_every_n_epoch` other than 1",
    "validation after every batch": "`val_check_interval: 1`, a validation after every batch",
    "validation data of later epochs": "a validation loader when no validation follows the first epoch",
    "reloaded validation data": "the count of evaluation batches when `reload_dataloaders_every_n_epochs` makes the loader again",
    "average before its first update": "`WeightAveraging` before its first update",
    "weights of an average": "`save_weights_only` with `WeightAveraging`",
    "average of a run that stops early": "`StochasticWeightAveraging` in a run that stops early",
    "rows of LearningRateMonitor": "rows of `LearningRateMonitor`",
}


def main():
    page = (HERE.parent.parent / "docs/differences.md").read_text()
    problems = [f"docs/differences.md has no row for \"{name}\": | {row} | … |" for name, row in ROWS.items()
                if not re.search(rf"(?m)^\| {re.escape(row)} \|", page)]
    sources = [(HERE / name).read_text() for name in ("lightning_models.py", "lightning_runs.py")]
    used = set(re.findall(r'USED\.add\("(.*?)"\)', "".join(sources)))
    problems += [f"lightning_models.py: \"{name}\" is not in ROWS" for name in sorted(used - set(ROWS))]
    problems += [f"ROWS: lightning_models.py does not use \"{name}\"" for name in sorted(set(ROWS) - used)]
    for problem in problems:
        print(problem)
    print(f"{len(ROWS)} documented differences, {len(problems)} problems")
    return len(problems) > 0


if __name__ == "__main__":
    sys.exit(main())
