"""`levin report` on folders of runs, opened in a headless Chromium where there is one.

  report_test.py LEVIN [unittest's arguments]
"""

import html.parser
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from levin_runs import run_levin  # noqa: E402

LEVIN = str(pathlib.Path(sys.argv.pop(1)).resolve())
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
EVIL = '</script><script>document.title="stolen"</script>'


def write_run(folder, lr, diverges=False):
    folder.mkdir(parents=True)
    rows = ["step,train_loss,val_loss"]
    for step in range(400):
        loss = 2 * math.exp(-step * lr) + 0.1 * math.sin(step)
        rows.append(f"{step},{'nan' if diverges and step > 300 else loss},")
        if step % 50 == 49:
            rows.append(f"{step},,{loss + 0.2}")
    (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
    (folder / "hparams.yaml").write_text(f"lr: {lr}\nname: \"it's \\\"{lr}\\\"\"\n")
    (folder / "run.json").write_text(json.dumps({
        "format": 1, "command": "fit", "argv": ["levin", "fit"], "status": "failed" if diverges else "success",
        "error": "loss is nan <here>" if diverges else "", "started": 1.7e9, "updated": 1.7e9 + 90, "ended": 1.7e9 + 90,
        "step": 400, "epoch": 3, "skipped_steps": 0, "clock": [[0, 1], [399, 90]],
        "time_split": {"data": 30, "forward": 60}, "checkpoints": [{"path": "checkpoints/a.ckpt", "step": 200}],
        "ranks": [{"rank": 0, "host": "h", "memory_bytes": 2**20, "peak_memory_bytes": 2**21}]}))


class Tags(html.parser.HTMLParser):
    """Elements that are closed in their order, and what they load."""

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.wrong = [], [], []

    def handle_starttag(self, tag, attributes):
        self.loads += [value for name, value in attributes if name in ("src", "href", "srcset", "action")]
        if tag not in ("meta", "link", "br", "input", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append((tag, self.getpos()))


class Report(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="levin_report_")
        self.addCleanup(self._folder.cleanup)
        self.root = pathlib.Path(self._folder.name)
        write_run(self.root / "logs/version_0", 0.01)
        write_run(self.root / "logs/version_1", 0.03, diverges=True)

    def levin(self, *arguments):
        done = run_levin([LEVIN, "report", *arguments], cwd=self.root, timeout=300)
        return done.returncode, done.stdout

    def page(self, *arguments):
        status, output = self.levin(*arguments)
        self.assertEqual(status, 0, output)
        return (self.root / "report.html").read_text()

    def dom(self, script="", javascript=True, width=1280):
        """The page's elements after `script` ran in it, and the console's output."""
        if CHROMIUM is None:
            self.skipTest("Chromium is not installed")
        text = (self.root / "report.html").read_text()
        if not javascript:
            text = text.replace("script-src 'unsafe-inline'", "script-src 'none'")
        if script:
            # Frames follow the real clock and timers the virtual one: a busy machine's page would be written too early.
            timers = "<script>requestAnimationFrame = (f) => setTimeout(f, 1); cancelAnimationFrame = clearTimeout;</script>"
            self.assertEqual(text.count("<head>"), 1)
            text = text.replace("<head>", "<head>" + timers)
            text = text.replace("</body>", f"<script>addEventListener('load', () => {{{script}}});</script></body>")
        (self.root / "shown.html").write_text(text)
        done = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
                               f"--user-data-dir={self.root}/profile", "--virtual-time-budget=3000", f"--window-size={width},2000",
                               "--dump-dom", f"file://{self.root}/shown.html"], text=True, timeout=240,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    def test_the_page_is_well_formed_and_loads_nothing(self):
        for arguments in (["logs/version_0"], ["logs"]):
            tags = Tags()
            tags.feed(self.page(*arguments))
            self.assertEqual(tags.wrong, [])
            self.assertEqual(tags.open, [])
            self.assertTrue(all(link.startswith("#") or link == "data:," for link in tags.loads), tags.loads)

    def test_findings_and_differences_are_in_it(self):
        page = self.page("logs")
        for text in ("train_loss is nan or infinite since step 301: 99 values of 400.", "33 % of the time (30.0 s) was spent",
                     "loss is nan &lt;here&gt;", "checkpoints/a.ckpt", "2.0 MiB", "version_0", "version_1", "0.03"):
            self.assertIn(text, page)

    def test_curves_are_there_without_javascript(self):
        self.page("logs")
        dom, console = self.dom(javascript=False)
        self.assertNotIn('data-ready="true"', dom)
        self.assertEqual(len(re.findall(r'<path class="smooth" d="M[^"]{50,}"', dom)), 4)
        self.assertEqual(len(re.findall(r'<path class="raw" d="M[^"]{50,}"', dom)), 4)
        self.assertIn('id="tools" hidden', dom)

    def test_the_script_draws_without_errors(self):
        self.page("logs")
        dom, console = self.dom()
        self.assertEqual(console, [])
        self.assertIn('data-ready="true"', dom)
        self.assertEqual(len(re.findall(r'<path class="smooth" d="M[^"]{50,}"', dom)), 4)

    def test_tables_fit_a_narrow_screen(self):
        self.page("logs")
        dom, _ = self.dom("document.title = [document.documentElement.scrollWidth - innerWidth, "
                          "...[...document.querySelectorAll('.scroll')].map((s) => s.scrollWidth - s.clientWidth)].join(' ');",
                          width=500)  # Chromium's narrowest window
        (title,) = re.findall(r"<title>(.*?)</title>", dom)
        self.assertGreater(len(title.split()), 3, title)
        self.assertEqual([n for n in title.split() if int(n) > 0], [], title)

    def test_a_legend_key_hides_its_curves(self):
        self.page("logs")
        dom, console = self.dom("document.querySelectorAll('.key')[1].click();")
        self.assertEqual(console, [])
        self.assertEqual(len(re.findall(r'<path class="smooth" d="M', dom)), 2)
        self.assertNotIn('<g class="c1 d0" data-key="1">', dom)
        self.assertIn('aria-pressed="false" data-key="1"', dom)

    def test_smoothing_time_and_log_scale_redraw(self):
        self.page("logs/version_0")
        dom, console = self.dom("const s = document.getElementById('smoothing'); s.value = 0.9; s.dispatchEvent(new Event('input'));"
                                "document.querySelector('[data-axis=time]').click(); document.getElementById('log').click();")
        self.assertEqual(console, [])
        self.assertIn(">0.90</output>", dom)
        self.assertRegex(dom, r'<text class="tx[^>]*>\d+ s</text>')
        self.assertRegex(dom, r'<text class="ty[^>]*>0\.[125]</text>')

    def test_a_pointer_shows_the_values(self):
        self.page("logs/version_0")
        dom, console = self.dom("const p = document.querySelector('.plot'), b = p.getBoundingClientRect();"
                                "p.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + b.width / 2, clientY: b.top + 50}));")
        self.assertEqual(console, [])
        self.assertRegex(dom, r'<div class="at">step \d+ · ')
        self.assertIn('<div class="who">train_loss</div>', dom)

    def test_names_of_files_run_nothing(self):
        folder = self.root / "logs/version_2"
        write_run(folder, 0.02)
        (folder / "metrics.csv").write_text(f'step,"{EVIL.replace(chr(34), chr(34) * 2)}"\n0,1\n1,2\n2,3\n')
        (folder / "hparams.yaml").write_text("\"it's\": \"" + EVIL.replace('"', '\\"') + "\"\n")
        self.page("logs/version_2")
        dom, console = self.dom("document.title += document.querySelectorAll('script').length;")
        self.assertEqual(console, [])
        self.assertRegex(dom, r"<title>version_2 – levin report4</title>")  # timers, data, the page's script, this one
        self.assertIn("&lt;/script&gt;&lt;script&gt;", dom)

    def test_the_output_goes_into_a_fifo_and_replaces_nothing_that_a_link_leads_to(self):
        os.mkfifo(self.root / "pipe")
        read = []
        reader = threading.Thread(target=lambda: read.append((self.root / "pipe").read_text()))
        reader.start()
        status, output = self.levin("logs", "--output", "pipe")
        reader.join(60)
        self.assertEqual(status, 0, output)
        self.assertTrue(read[0].startswith("<!doctype html>"), read[0][:100])
        self.assertTrue((self.root / "pipe").is_fifo())
        (self.root / "null").symlink_to("/dev/null")
        status, output = self.levin("logs", "--output", "null")
        self.assertEqual((status, os.readlink(self.root / "null")), (0, "/dev/null"), output)
        (self.root / "theirs").write_text("theirs")  # in a folder from others, the name that is not given may be a link
        (self.root / "report.html").symlink_to("theirs")
        self.page("logs")
        self.assertEqual((self.root / "theirs").read_text(), "theirs")

    def test_mistakes_are_named(self):
        (self.root / "empty").mkdir()
        for arguments, message in (([], "report: no run was named. Write levin report levin_logs/version_0."),
                                   (["empty"], "empty: no run found."),
                                   (["nowhere"], "nowhere: the folder does not exist."),
                                   (["logs", "--outpt=x"], '"--outpt=x": unknown option. Did you mean "--output"?'),
                                   (["logs", "--output"], "--output: no value follows."),
                                   (["logs", "--output="], "--output: the file's name is empty.")):
            status, output = self.levin(*arguments)
            self.assertEqual(status, 2, output)
            self.assertIn(message, output)
            self.assertFalse((self.root / "report.html").exists())
        status, output = self.levin("logs", "--output", "no/such/folder/report.html")
        self.assertEqual(status, 1, output)
        self.assertIn("no/such/folder", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
