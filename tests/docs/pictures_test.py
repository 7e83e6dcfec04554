"""pictures_test.py BUILD/bin: the pictures of the README can be made again, and those in docs/pictures are like the new ones."""
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/site"))
import pictures  # noqa: E402

OLD = ROOT / "docs/pictures"
# What each animation shows in some frame, with numbers left out.
SHOWN = {"progress.svg": [r"levin fit --config configs/fashion_mnist\.yaml --trainer\.max_epochs=\d", r"Epoch \d/\d .*%.*it/s.*train_loss [\d.]+",
                          r"epoch 0/\d: 860 batches in .*val_acc 0\.\d+", r"Trained \d epochs, \d+ steps, in .*", r"test_acc +0\.\d+"],
         "top.svg": [r"levin_logs/version_0.* fit.* running", r"epoch \d of \d  step \d+", r"batches/s  [\d,]+ samples/s",
                     r"time .*backward \d+ %", r"train_loss.* 0\.\d+.*val_loss", "[\u2801-\u28ff]{5}", r"0 .*training +[\d.]+ MiB"]}


def lines_of(svg):
    """The text of each line of each frame."""
    return [" ".join(text.text for text in group if text.text) for group in ElementTree.parse(svg).getroot().iter()
            if group.tag.endswith("}g")]


def frames_of(svg):
    return int(ElementTree.parse(svg).getroot().get("data-frames"))


def size_of(picture):
    if picture.suffix == ".png":
        return struct.unpack(">II", picture.read_bytes()[16:24])
    root = ElementTree.parse(picture).getroot()
    return int(root.get("width")), int(root.get("height"))


class Pieces(unittest.TestCase):
    def test_styles_last_over_lines_until_they_change(self):
        screen = ["\x1b[1mbold\x1b[0m  plain \x1b[32mgreen", "still\x1b[39m default\x1b[2m"]
        self.assertEqual(pictures.pieces_of(screen, 3), [
            [(0, "bold", "font-weight:bold"), (6, "plain", ""), (12, "green", "fill:#7ee787")],
            [(0, "still", "fill:#7ee787"), (6, "default", "fill:#c9d1d9")], []])

    def test_a_line_that_stays_is_written_once_and_the_last_screen_is_visible(self):
        svg = pictures.animation([["same", "first"], ["same", "first"], ["same", "last <1>"]], 2)
        self.assertEqual(svg.count(">same<"), 1)
        self.assertIn('data-frames="2"', svg)
        hidden, shown = (re.search(rf'<g class="(\w+)"><text[^>]*>{text}', svg).group(1) for text in ("first", "last &lt;1&gt;"))
        self.assertIn(f".{hidden}{{opacity:0;", svg)
        self.assertIn(f".{shown}{{opacity:1;", svg)


class Pictures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if len(sys.argv) < 2 or not pictures.shutil.which("tmux"):
            raise unittest.SkipTest("tmux is not installed, or no BUILD/bin was given")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.new = Path(folder.name)
        subprocess.run([sys.executable, "-B", ROOT / "docs/site/pictures.py", Path(sys.argv[1]) / "levin", cls.new, "--epochs", "2"],
                       check=True, timeout=240)

    def test_the_animations_show_the_run_and_so_do_those_of_the_readme(self):
        for name, shown in SHOWN.items():
            self.assertEqual(size_of(self.new / name), size_of(OLD / name))
            for folder in (self.new, OLD):
                with self.subTest(name=name, folder=folder):
                    self.assertGreaterEqual(frames_of(folder / name), 5)
                    lines = "\n".join(lines_of(folder / name))
                    for pattern in shown:
                        self.assertRegex(lines, pattern)
                    self.assertNotIn("/tmp", lines)

    @unittest.skipUnless(pictures.CHROMIUM, "Chromium is not installed")
    def test_the_report_has_a_picture_of_the_same_size(self):
        self.assertEqual(size_of(self.new / "report.png"), size_of(OLD / "report.png"))
        self.assertGreater((self.new / "report.png").stat().st_size, 20_000)  # an empty page takes 5 kB


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
