"""Writes the pages of options of a small tool, and sees reference.py name a difference."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SITE = Path(__file__).resolve().parents[2] / "docs/site"
sys.path.insert(0, str(SITE))
import reference  # noqa: E402

TOOL = """#!/bin/sh
case "$*" in
  list) cat <<'END'
{list}
END
  ;;
  "help trainer") printf 'one\\ntwo\\nHow long\\n  max_epochs  stop\\nlevin list strategies\\n' ;;
  "help trainer.max_epochs") printf 'trainer.max_epochs\\n  stop after this many; -1: never.\\n  type: int or null\\n  default: null\\n' ;;
  "help A") cat <<'END'
A: does a thing
In a run file at trainer.things: {{class_path: A, init_args: {{…}}}}

  option  type     default  meaning
  mode    min|max  min      [min] or {meaning}
END
  ;;
  "help B") printf 'B: has no options\\nIn a run file at trainer.things: {{class_path: B}}\\n\\n  no options\\n' ;;
  *) exit 2 ;;
esac
"""


class Reference(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.make_tool("max")

    def make_tool(self, meaning):
        kinds = "\n\n".join(f"{kind} (trainer.{kind})\n Levin's\n  A  does a thing\n  B  has no options\n examples\n  C  another"
                            for kind in reference.KINDS)
        self.tool = self.root / "levin"
        self.tool.write_text(TOOL.format(list=kinds, meaning=meaning), encoding="utf-8")
        self.tool.chmod(0o755)

    def run_reference(self, word):
        return subprocess.run([sys.executable, "-B", SITE / "reference.py", word, self.tool, self.root / "options"],
                              capture_output=True, text=True, check=False)

    def test_pages_have_every_option_of_levins_own_classes(self):
        self.assertEqual(self.run_reference("write").returncode, 0)
        self.assertIn("\n## How long\n\n| option | type | default | meaning |\n| --- | --- | --- | --- |\n"
                      "| `max_epochs` | int or null | `null` | stop after this many; -1: never |\n",
                      (self.root / "options/trainer.md").read_text(encoding="utf-8"))
        text = (self.root / "options/callbacks.md").read_text(encoding="utf-8")
        self.assertIn("In a run file at `trainer.things`", text)
        self.assertIn("| [A](#a) | does a thing |\n| B | has no options |\n\n## A\n", text)
        self.assertTrue(text.endswith("| `mode` | min\\|max | `min` | \\[min\\] or max |\n"), text)
        self.assertEqual(self.run_reference("check").returncode, 0)

    def test_an_option_with_another_meaning_is_named_with_its_page(self):
        self.run_reference("write")
        self.make_tool("the largest")
        done = self.run_reference("check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("docs/options/callbacks.md", done.stdout)
        self.assertIn("or the largest |", done.stdout)
        self.assertIn("Run docs/site/reference.py write", done.stdout)

    def test_a_tool_that_fails_is_an_error_with_its_output(self):
        self.tool.write_text("#!/bin/sh\necho no classes\nexit 3\n", encoding="utf-8")
        done = self.run_reference("check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("status 3:\nno classes", done.stderr.replace("\r", ""))


if __name__ == "__main__":
    unittest.main()
