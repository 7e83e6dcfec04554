"""MLFlowLogger and a real MLflow server: what MLflow's own Python client reads back, and what happens to values when
the server is down, slow or full of refusals.
"""

import base64
import http.server
import json
import math
import pathlib
import socketserver
import subprocess
import threading
import time
import urllib.request

from driven import PROGRAM, main, wait_until
from mlflow_server import MlflowTest, missing


class Whole(MlflowTest):
    """Everything that a run sends."""

    def test_a_run_reaches_the_server_with_all_that_it_has_logged(self):
        self.share_server()
        checkpoint = self.folder / "epoch=0.ckpt"
        checkpoint.write_bytes(bytes(range(256)) * 5000)
        (self.folder / "config.yaml").write_text("a: 1\n")
        logger = self.logger(run_name="first", tags={"team": "vision"}, log_model="all", prefix="fold1")
        logger("own")
        logger("hparams", {"lr": 0.1, "model": {"layers": [64, 32], "name": "mlp"}, "none": None, "long": "x" * 7000})
        logger("metrics", 0, {"loss": 0.5, "val/acc": 0.25, "acc@5": 0.75, "acc|5": 0.5})
        logger("metrics", 1, {"loss": "nan"})
        logger("metrics", 2, {"loss": "inf"})
        logger("flood", 10, 250)
        logger("system", 3, {"memory": 12.5})
        logger("text", 4, "sample", "# Once\nupon a time — ünïcode")
        logger("table", 5, "confusion", {"columns": ["class", "hits"], "data": [["cat", 3], ["dog", "nan"]]})
        logger("artifact", 6, "checkpoints/epoch=0.ckpt", str(checkpoint))
        link = self.folder / "last.ckpt"
        link.symlink_to(checkpoint.name)  # as with save_last: link
        logger("artifact", 6, "checkpoints/last.ckpt", str(link))
        checkpoint.unlink()  # as ModelCheckpoint does when a better one is saved
        logger("artifact", 6, "", str(self.folder / "config.yaml"))
        logger("finalize", "success")
        self.assertEqual(logger.end(), 0)
        client = self.client()
        run, = self.runs(client)
        self.assertEqual((run.info.status, run.info.run_name, run.data.tags["team"]), ("FINISHED", "first", "vision"))
        self.assertGreater(run.info.end_time, run.info.start_time)
        self.assertEqual(run.data.params, {"lr": "0.1", "model.layers.0": "64", "model.layers.1": "32",
                                           "model.name": "mlp", "none": "null", "long": "x" * 6000})
        self.assertIn('the value of "long" is cut to MLflow\'s limit of 6000 bytes', logger.output)
        history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        self.assertEqual(sorted(history), sorted(
            ["fold1-loss", "fold1-val/acc", "fold1-acc_5", "fold1-acc_5_2", "system/memory", *(f"fold1-metric_{k}" for k in range(10))]))
        self.assertIn('MLflow does not take the name "fold1-acc@5"; it is sent as "fold1-acc_5"', logger.output)
        loss = {metric.step: metric.value for metric in history["fold1-loss"]}
        self.assertEqual(loss[0], 0.5)
        self.assertTrue(math.isnan(loss[1]))
        self.assertGreater(loss[2], 1e308)  # MLflow's databases have no infinity
        for k in range(10):
            rows = sorted(history[f"fold1-metric_{k}"], key=lambda m: m.step)
            self.assertEqual([(m.step, m.value, m.timestamp) for m in rows],
                             [(step, step + 0.1 * k, (1700000000 + step) * 1000) for step in range(10, 260)])
        path = client.download_artifacts(run.info.run_id, "checkpoints/epoch=0.ckpt", str(self.folder))
        self.assertEqual(pathlib.Path(path).read_bytes(), bytes(range(256)) * 5000)
        path = client.download_artifacts(run.info.run_id, "checkpoints/last.ckpt", str(self.folder))
        self.assertEqual(pathlib.Path(path).read_bytes(), bytes(range(256)) * 5000)
        path = client.download_artifacts(run.info.run_id, "texts/sample/4.md", str(self.folder))
        self.assertEqual(pathlib.Path(path).read_text(encoding="utf-8"), "# Once\nupon a time — ünïcode")
        path = client.download_artifacts(run.info.run_id, "tables/confusion/5.json", str(self.folder))
        self.assertEqual(json.loads(pathlib.Path(path).read_text()),
                         {"columns": ["class", "hits"], "data": [["cat", 3.0], ["dog", "nan"]]})
        self.assertEqual([file.path for file in client.list_artifacts(run.info.run_id)],
                         ["checkpoints", "config.yaml", "tables", "texts"])
        self.assertEqual(list((self.run_folder() / "outbox_files").iterdir()), [])
        self.resume_of(run.info.run_id, client)

    def resume_of(self, run_id, client):
        logger = self.logger(resume=True, prefix="fold1")
        logger("own")
        logger("metrics", 300, {"loss": 0.125})
        wait_until(lambda: client.get_run(run_id).info.status == "RUNNING", "the status RUNNING of a resumed run")
        logger("finalize", "interrupted")
        self.assertEqual(logger.end(), 0)
        run, = self.runs(client)
        self.assertEqual((run.info.run_id, run.info.status), (run_id, "KILLED"))
        self.assertIn((300, 0.125), [(m.step, m.value) for m in client.get_metric_history(run_id, "fold1-loss")])
        by_id = self.logger(run_id=run_id)  # into a new folder, by the option
        by_id("own")
        by_id("metrics", 301, {"by_id": 1})
        by_id("finalize", "failed")
        by_id.end()
        run, = self.runs(client)
        self.assertEqual((run.info.status, run.data.metrics["by_id"]), ("FAILED", 1.0))


class Down(MlflowTest):
    def test_a_server_that_comes_late_dies_and_comes_back_gets_every_value_once(self):
        logger = self.logger(finish_timeout="240s")
        logger("own")
        spent = logger("flood", 0, 200)
        self.assertLess(spent, 20000)  # microseconds for ten values: nothing waits for a server
        wait_until(lambda: "cannot be reached" in logger.output, "the warning")
        self.assertRegex(logger.output, r"MLFlowLogger: the server http://127.0.0.1:\d+ cannot be reached: .*(refused|"
                                      r"connect).* Values are kept in .*outbox.jsonl and sent when it answers; training "
                                      "continues.")
        self.start_server()
        client = self.client()
        wait_until(lambda: self.stored(client) >= 200, "the arrival of what waited", seconds=120)
        # Killed in the middle of a stream of values, and started again.
        logger.send("flood", 200, 5000)
        wait_until(lambda: self.stored(client) > 200, "the arrival of new values", seconds=120)
        self.kill_server()
        logger.answer()
        logger("metrics", 100000, {"after": 1})
        self.start_server()
        logger("finalize", "success")
        self.assertEqual(logger.end(), 0)
        self.assertNotIn("not sent", logger.output)
        run, = self.runs(client)
        self.assertEqual(run.info.status, "FINISHED")
        self.assertEqual(run.data.metrics["after"], 1)
        for name in ("metric_0", "metric_9"):
            steps = [m.step for m in client.get_metric_history(run.info.run_id, name)]
            self.assertEqual(sorted(steps), list(range(5200)))

    def stored(self, client):
        runs = self.runs(client)
        return len(client.get_metric_history(runs[0].info.run_id, "metric_9")) if runs else 0

    def test_a_run_that_never_reaches_a_server_reports_what_it_keeps_and_a_later_command_sends_it(self):
        logger = self.logger(finish_timeout="1s")
        logger("own")
        logger("hparams", {"lr": 0.5})
        logger("flood", 0, 5)
        logger("finalize", "success")
        self.assertEqual(logger.end(), 0)
        self.assertRegex(logger.output, r"MLFlowLogger: 51 values were not sent to the server http://\S+: .* They are kept "
                                      r"in \S+/version_0/outbox.jsonl. The next resume of this run sends them, or: "
                                      r"levin runs send \S+/version_0")
        self.start_server()
        report = json.loads(subprocess.run([PROGRAM, "send", str(self.folder), "100"], capture_output=True, text=True,
                                           check=True).stdout)
        self.assertEqual(report, {"delivered": 51, "waiting": 0, "dropped": 0, "refused": 0, "problem": ""})
        run, = self.runs()
        self.assertEqual((run.info.status, run.data.params, run.data.metrics["metric_3"]),
                         ("FINISHED", {"lr": "0.5"}, 4.3))

    def test_a_killed_process_loses_nothing_and_sends_nothing_twice(self):
        self.share_server()
        client = self.client()
        logger = self.logger()
        logger("own")
        logger("flood", 0, 3000)  # answered: all of it was spilled
        wait_until(lambda: self.stored(client) > 0, "the arrival of values", seconds=120)
        logger.kill()  # while the rest is on its way
        before = self.stored(client)
        self.assertLess(before, 3000)
        resumed = self.logger(resume=True)
        resumed("own")
        resumed("metrics", 3000, {"metric_9": 1})
        resumed("finalize", "success")
        self.assertEqual(resumed.end(), 0)
        run, = self.runs(client)
        for name in ("metric_0", "metric_9"):
            rows = [(m.step, m.timestamp) for m in client.get_metric_history(run.info.run_id, name)]
            expected = [(step, (1700000000 + step) * 1000) for step in range(3000)]
            self.assertEqual(sorted(rows)[:3000], expected)
            self.assertEqual(len(rows), 3000 + (name == "metric_9"))

    def test_a_resumed_run_does_not_send_what_came_after_the_checkpoint(self):
        logger = self.logger(finish_timeout="0s")
        logger("own")
        logger("metrics", 0, {"loss": 1})
        state = logger("state")
        logger("metrics", 1, {"loss": 2})
        logger.kill()
        self.start_server()  # before the resume: what came after the checkpoint could be sent
        resumed = self.logger(resume=True)
        resumed("own")
        time.sleep(1)  # the values of step 1 could be sent
        resumed("load", state)
        resumed("metrics", 1, {"loss": 3})
        resumed("finalize", "success")
        resumed.end()
        client = self.client()
        run, = self.runs(client)
        self.assertEqual([(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "loss")], [(0, 1.0), (1, 3.0)])

    def test_values_beyond_the_spill_s_size_are_counted(self):
        logger = self.logger(finish_timeout="0s", max_spill="10000")
        logger("own")
        logger("flood", 0, 100)
        logger("finalize", "success")
        logger.end()
        self.assertRegex(logger.output, r"outbox.jsonl holds as much as it may \(10000 bytes\) for the server http://\S+. Further "
                                      r"values are dropped until the server takes some; they are counted.")
        dropped = int(logger.output.split(" values found no room")[0].split()[-1])
        self.assertIn("and are lost. Raise max_spill.", logger.output)
        self.assertGreater(dropped, 500)
        size = (self.run_folder() / "outbox.jsonl").stat().st_size
        self.assertLessEqual(size, 10000)
        self.start_server()
        sent = json.loads(subprocess.run([PROGRAM, "send", str(self.folder), "100"], capture_output=True, text=True).stdout)
        self.assertEqual(sent["delivered"] + dropped, 1000)
        self.assertEqual(sent["dropped"], dropped)


class Proxy(http.server.BaseHTTPRequestHandler):
    """Between the logger and the server: slow, overloaded or overwhelmed as the test wants it."""
    protocol_version = "HTTP/1.1"

    def do(self):
        self.server.calls.append(self.path)
        self.server.headers = self.headers
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        action = self.server.action(self.path, body)
        if isinstance(action, tuple):
            status, headers, text = action
            return self.reply(status, headers, text.encode())
        request = urllib.request.Request(self.server.target + self.path, body or None, method=self.command, headers={
            "Content-Type": self.headers.get("Content-Type", "")})
        try:
            with urllib.request.urlopen(request) as answer:
                self.reply(answer.status, {}, answer.read())
        except urllib.error.HTTPError as error:
            self.reply(error.code, {}, error.read())

    def reply(self, status, headers, body):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do

    def log_message(self, *_):
        pass


class ProxyTest(MlflowTest):
    def proxy(self, action):
        class Threads(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # the logger has given up waiting

        proxy = Threads(("127.0.0.1", 0), Proxy)
        proxy.target, proxy.action, proxy.calls = self.uri, action, []
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        self.addCleanup(proxy.server_close)
        self.addCleanup(proxy.shutdown)
        return proxy, f"http://127.0.0.1:{proxy.server_port}"


class Between(ProxyTest):
    def test_a_slow_or_overloaded_server_gets_every_value(self):
        self.share_server()
        seen = {"slow": 0, "busy": 0}

        def action(path, _):
            if "log-batch" in path and seen["slow"] < 1:
                seen["slow"] += 1
                time.sleep(4)  # longer than the timeout: the answer is never read, though the server has the values
            elif "log-batch" in path and seen["busy"] < 2:
                seen["busy"] += 1
                return [(429, {"Retry-After": "1"}, "slow down"), (503, {}, "starting")][seen["busy"] - 1]
            return None

        _, uri = self.proxy(action)
        logger = self.logger(tracking_uri=uri, timeout="2s")
        logger("own")
        logger("flood", 0, 50)
        logger("finalize", "success")
        self.assertEqual(logger.end(), 0)
        self.assertRegex(logger.output, r"cannot be reached: .*(timed out|Timeout).*")
        self.assertIn("answers again.", logger.output)
        self.assertEqual(seen, {"slow": 1, "busy": 2})
        client = self.client()
        run, = self.runs(client)
        self.assertEqual(sorted(m.step for m in client.get_metric_history(run.info.run_id, "metric_5")), list(range(50)))

    def test_what_the_server_refuses_is_reported_once_and_the_rest_arrives(self):
        self.share_server()

        def action(path, body):
            if "log-batch" in path and b'"poison"' in body:
                return 400, {}, json.dumps({"error_code": "INVALID_PARAMETER_VALUE", "message": "no poison here"})
            return None

        proxy, uri = self.proxy(action)
        logger = self.logger(tracking_uri=uri)
        logger("flood", 0, 0)
        logger("own")
        for step in range(100):
            logger("metrics", step, {"poison" if step in (33, 71) else "good": step})
        logger("finalize", "success")
        self.assertEqual(logger.end(), 0)
        self.assertRegex(logger.output, r"MLFlowLogger: the server http://\S+ refused 1 value: HTTP status 400: no poison here. "
                                      r"Further refusals are counted, and reported at the end.")
        self.assertEqual(logger.output.count("no poison here"), 1)
        self.assertRegex(logger.output, r"MLFlowLogger: the server http://\S+ refused 2 values of this run.")
        client = self.client()
        run, = self.runs(client)
        self.assertEqual(run.info.status, "FINISHED")
        self.assertEqual(sorted(m.step for m in client.get_metric_history(run.info.run_id, "good")),
                         [step for step in range(100) if step not in (33, 71)])

    def test_a_redirect_is_not_followed_and_shows_no_credentials(self):
        proxy, uri = self.proxy(lambda *_: (302, {"Location": "http://127.0.0.1:9/elsewhere"}, ""))
        logger = self.logger(tracking_uri=uri, finish_timeout="2s", env={
            "MLFLOW_TRACKING_USERNAME": "someone", "MLFLOW_TRACKING_PASSWORD": "xyzzy-secret"})
        logger("own")
        logger("metrics", 0, {"loss": 1})
        logger("finalize", "success")
        logger.end()
        self.assertIn("HTTP status 302: it redirects to http://127.0.0.1:9/elsewhere; use that as tracking_uri", logger.output)
        self.assertEqual(len(proxy.calls), 1)
        self.assertNotIn("xyzzy", logger.output + "".join(path.read_text() for path in self.run_folder().glob("*.*")))


class Credentials(ProxyTest):
    """A server whose proxy asks for a user and a password."""

    def guarded(self):
        right = "Basic " + base64.b64encode(b"admin:xyzzy-secret-12").decode()
        return self.proxy(lambda *_: None if self.guard.headers.get("Authorization") == right else
                          (401, {"WWW-Authenticate": "Basic"}, "You are not authenticated."))

    def test_wrong_credentials_stop_the_sending_and_right_ones_send_it_later(self):
        self.share_server()
        self.guard, uri = self.guarded()
        wrong = {"MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": "wrong-password-34"}
        logger = self.logger(tracking_uri=uri, env=wrong)
        logger("own")
        logger("metrics", 0, {"loss": 1})
        wait_until(lambda: "refuses this run" in logger.output, "the refusal")
        logger("finalize", "success")
        logger.end()
        self.assertRegex(logger.output, r"the server http://\S+ refuses this run: HTTP status 401: You are not authenticated.. "
                                      r"Set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or "
                                      r"MLFLOW_TRACKING_TOKEN. Values are kept in ")
        self.assertIn("1 value was not sent", logger.output)
        self.assertEqual(len(self.guard.calls), 1)
        right = {"MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": "xyzzy-secret-12"}
        resumed = self.logger(resume=True, tracking_uri=uri, env=right)
        resumed("own")
        resumed("finalize", "success")
        resumed.end()
        self.assertNotIn("not sent", resumed.output)
        run, = self.runs()
        self.assertEqual((run.info.status, run.data.metrics), ("FINISHED", {"loss": 1.0}))
        for secret in ("wrong-password-34", "xyzzy-secret-12"):
            self.assertNotIn(secret, logger.output + resumed.output)
            for path in self.run_folder().glob("*.*"):
                self.assertNotIn(secret, path.read_text())


class Mistakes(MlflowTest):
    def test_a_missing_or_unusable_server_is_an_error_at_once(self):
        for options, env, expected in [
                ({"tracking_uri": ""}, {}, "MLFlowLogger: no server. Set tracking_uri, or the environment variable "
                                           "MLFLOW_TRACKING_URI, to the URL of an MLflow server"),
                ({"tracking_uri": "file:///tmp/mlruns"}, {}, "tracking_uri: must be the http or "
                                                             "https URL of an MLflow server (mlflow server starts one on"),
                ({"tracking_uri": ""}, {"MLFLOW_TRACKING_URI": "databricks"},
                 "the tracking URI databricks is not the http or https URL of a server. Levin sends to a server only"),
                ({"tracking_uri": "http://me:xyzzy@host"}, {}, "tracking_uri contains a user or a password, which would be "
                                                               "written to config.yaml and checkpoints. Set "
                                                               "MLFLOW_TRACKING_USERNAME")]:
            logger = self.logger(env={"MLFLOW_TRACKING_URI": "", **env}, **options)
            logger.process.wait(60)
            self.assertIn(expected, logger.output)
            self.assertNotIn("xyzzy", logger.output)


if __name__ == "__main__":
    main(missing())
