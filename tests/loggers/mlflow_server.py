"""A real MLflow server, which tests start and kill, and what it has stored."""

import os
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from driven import HOME, LoggerTest, free_port, wait_until

PACKAGES = HOME / "mlflow"
PYTHON = os.environ.get("LEVIN_PYTHON") or "/usr/bin/python3"


def missing():
    """Returns why the server cannot run here; "" if it can."""
    done = subprocess.run([PYTHON, "-c", "import mlflow.version"], env={**os.environ, "PYTHONPATH": str(PACKAGES)},
                          capture_output=True)
    return "" if done.returncode == 0 else \
        "MLflow's server is not installed here. ./dev check --peers installs one (0.5 GB to download)"


# Processes of a server take seconds to import MLflow on a busy machine.
START = 180


class MlflowTest(LoggerTest):
    shared = None  # (port, process) of the server of all tests that do not stop theirs

    def setUp(self):
        super().setUp()
        self.experiment = "tests"
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.server = None

    def share_server(self):
        """In it each test has an experiment of its own."""
        self.experiment = self.id()
        if MlflowTest.shared is None:
            folder = tempfile.TemporaryDirectory()
            unittest.addModuleCleanup(folder.cleanup)
            self.start_server(folder=Path(folder.name), cleanup=unittest.addModuleCleanup)
            MlflowTest.shared = self.port, self.server
        self.port, self.server = MlflowTest.shared
        self.uri = f"http://127.0.0.1:{self.port}"

    def server_arguments(self, *more, folder=None):
        store = (folder or self.folder) / "store"
        store.mkdir(exist_ok=True)
        return [PYTHON, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1",
                "--backend-store-uri", f"sqlite:///{store}/mlflow.db", "--artifacts-destination", str(store / "files"),
                *more]

    def start_server(self, *more, env=None, folder=None, cleanup=None):
        self.server = self.start(self.server_arguments(*more, folder=folder), cleanup, cwd=folder or self.folder, env={
            **os.environ, "PYTHONPATH": str(PACKAGES), "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # workers that it does not need for tracking
            **(env or {})})
        wait_until(self.is_up, "the start of the MLflow server", seconds=START)

    def is_up(self):
        if self.server.poll() is not None:
            self.server.log.seek(0)
            raise AssertionError("the MLflow server has ended:\n" + self.server.log.read())
        try:
            with urllib.request.urlopen(self.uri + "/health", timeout=5) as answer:
                return answer.status == 200
        except urllib.error.HTTPError as error:
            return error.code == 401
        except OSError:
            return False

    def kill_server(self):
        self.server.stop()

    def logger(self, resume=False, env=None, **options):
        options = {"tracking_uri": self.uri, "experiment_name": self.experiment, "timeout": "20s", **options}
        return self.driven("MLFlowLogger", options, resume, env={"NO_PROXY": "127.0.0.1", "MLFLOW_TRACKING_URI": "", **(env or {})})

    def client(self):
        sys.path.insert(0, str(PACKAGES)) if str(PACKAGES) not in sys.path else None
        os.environ["MLFLOW_TRACKING_URI"] = self.uri
        import mlflow  # noqa: PLC0415  (seconds)
        return mlflow.MlflowClient(self.uri)

    def runs(self, client=None):
        client = client or self.client()
        experiment = client.get_experiment_by_name(self.experiment)
        return client.search_runs([experiment.experiment_id]) if experiment else []

    def run_folder(self, number=0):
        return self.folder / "root" / "mlflow_logs" / f"version_{number}"
