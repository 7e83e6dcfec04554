"""Compares the samples of a long run that endurance_program writes: a run must use as much at its end as at its start."""
import json
import pathlib
import statistics

MAX_RESIDENT_GROWTH = 5_000_000  # bytes, from the end of the warm-up to the end of the run
MAX_HEAP_PER_STEP = 8            # bytes; a step that keeps 16 bytes takes at least 16
MAX_SLOWDOWN = 2                 # processor time of a step at the end, compared with a step at the beginning

# Bytes that the heap of a short run may grow by, regardless of its steps: what has an upper limit is not full yet, such as
# the warnings that the console remembers, the loggers' queue and SQLite's cache of pages (2 MB).
SHORT_STEPS = 20_000
SHORT_ALLOWANCE = 100_000
SHORT_ALLOWANCES = {"sqlite": 3_000_000, "all_loggers": 3_000_000, "fresh_trainers": 3_000_000,
                    "fits_of_one_trainer": 300_000}  # the hundred sessions of run.json


class Samples:
    """Samples of one run, without its first fifth, the warm-up."""

    def __init__(self, path, kind):
        columns = json.loads(pathlib.Path(path).read_text())
        first = len(columns["step"]) // 5
        self.columns = {name: values[first:] for name, values in columns.items()}
        self.steps = columns["step"][-1]
        self.is_short = self.steps < SHORT_STEPS
        self.allowance = SHORT_ALLOWANCES.get(kind, SHORT_ALLOWANCE) if self.is_short else 0

    def ends(self, values):
        """Returns the medians of the first and the last quarter of `values`."""
        part = max(1, len(values) // 4)
        return statistics.median(values[:part]), statistics.median(values[-part:])

    def growth(self, name):
        first, last = self.ends(self.columns[name])
        return last - first

    def heap_per_step(self):
        return self.growth("heap_bytes") / self.growth("step")

    def seconds_per_step(self):
        """Returns the median of a step's processor time in the first and in the last quarter."""
        rows = list(zip(self.columns["step"], self.columns["processor_seconds"]))
        return self.ends([(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(rows, rows[1:])])

    def problems(self):
        """Returns what grows, as sentences; an empty list for a run that could continue forever."""
        found = []
        resident = self.growth("resident_bytes")
        if resident > MAX_RESIDENT_GROWTH:
            found.append(f"resident memory grew by {resident:,.0f} bytes in {self.steps:,} steps; "
                         f"the limit is {MAX_RESIDENT_GROWTH:,} bytes")
        if self.growth("heap_bytes") > self.allowance + MAX_HEAP_PER_STEP * self.growth("step"):
            found.append(f"the heap grew by {self.heap_per_step():.1f} bytes per step; "
                         f"the limit is {MAX_HEAP_PER_STEP} bytes per step and {self.allowance:,} bytes")
        for name in ("descriptors", "threads"):
            first, last = self.ends(self.columns[name])
            if last > first:
                found.append(f"the run had {first:g} {name} at its start and {last:g} at its end")
        first, last = self.seconds_per_step()
        if not self.is_short and last > MAX_SLOWDOWN * first:
            found.append(f"a step took {first * 1e6:.0f} us at the start and {last * 1e6:.0f} us at the end")
        return found

    def summary(self):
        first, last = self.seconds_per_step()
        return (f"{self.steps:,} steps: resident memory {self.columns['resident_bytes'][-1] / 1e6:.0f} MB, "
                f"{self.growth('resident_bytes') / 1e6:+.2f} MB; heap {self.heap_per_step():+.2f} bytes per step; "
                f"{self.columns['descriptors'][-1]} descriptors, {self.columns['threads'][-1]} threads; "
                f"{first * 1e6:.0f} us per step, then {last * 1e6:.0f} us")
