"""The schema of `levin schema`, by Python's jsonschema: it accepts the run files of configs/, and finds mistakes in them.

  schema_test.py LEVIN [unittest's arguments]
"""

import copy
import json
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from levin_runs import run_levin  # noqa: E402

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(f"Skipped: {missing}. Debian's python3-jsonschema and python3-yaml have them.")
    sys.exit(77)

LEVIN = str(pathlib.Path(sys.argv.pop(1)).resolve())
CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
SCHEMA = CONFIGS / "levin.schema.json"
LINE = "# yaml-language-server: $schema=levin.schema.json\n"


class Yaml12(yaml.SafeLoader):
    """PyYAML reads YAML 1.1; editors and Levin read 1.2, where 3e-4 is a number, and yes and on are text."""


Yaml12.yaml_implicit_resolvers = {}
for tag, pattern, first in (("bool", r"true|false", "tf"), ("null", r"null|~|", ["n", "~", ""]),
                            ("int", r"[-+]?[0-9]+", "-+0123456789"),
                            ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789")):
    Yaml12.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), list(first))


def read(path):
    return yaml.load(path.read_text(), Yaml12)


class Schema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.schema = json.loads(SCHEMA.read_text())
        jsonschema.Draft7Validator.check_schema(cls.schema)
        cls.validator = jsonschema.Draft7Validator(cls.schema)

    def mistakes(self, value):
        found = []

        def collect(error):
            found.append("/".join(map(str, error.absolute_path)) + ": " + error.message)
            for inner in error.context or []:
                collect(inner)

        for error in self.validator.iter_errors(value):
            collect(error)
        return found

    def test_the_file_in_the_tree_is_what_the_tool_writes(self):
        done = run_levin([LEVIN, "schema"], merge=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, SCHEMA.read_text(),
                         "an option or a class has changed: levin schema --output configs/levin.schema.json")

    def test_every_file_of_configs_names_the_schema_and_fits_it(self):
        files = sorted(CONFIGS.glob("*.yaml"))
        self.assertGreater(len(files), 20)
        for path in files:
            with self.subTest(path.name):
                self.assertTrue(path.read_text().startswith(LINE))
                self.assertEqual(self.mistakes(read(path)), [])

    def test_the_printed_configuration_fits_it(self):
        for name in ("gpt", "fsdp", "tiny_llama_lora"):
            with self.subTest(name):
                done = run_levin([LEVIN, "fit", "--config", CONFIGS / f"{name}.yaml", "--print_config"], merge=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(self.mistakes(yaml.load(done.stdout, Yaml12)), [])

    def test_mistakes_are_found_where_they_are(self):
        good = {"trainer": {"max_epochs": 3, "callbacks": [{"class_path": "EarlyStopping", "init_args": {"mode": "min"}}]},
                "model": {"class_path": "Classifier"}, "optimizer": {"class_path": "AdamW", "no_decay": True}}
        self.assertEqual(self.mistakes(good), [])
        for path, value, where in (
                ("trainer/max_epoch", 3, "trainer: Additional properties"),
                ("trainer/max_epochs", "three", "trainer/max_epochs: 'three' is not"),
                ("trainer/gradient_clip_algorithm", "size", "trainer/gradient_clip_algorithm: 'size' is not one of"),
                ("trainer/callbacks/0/class_path", "EarlyStoping", "callbacks/0/class_path: 'EarlyStoping' is not one of"),
                ("trainer/callbacks/0/init_args/patience", 1.5, "init_args/patience: 1.5 is not of type 'integer'"),
                ("trainer/callbacks/0/init_args/mode", "least", "init_args/mode: 'least' is not one of"),
                ("trainer/strategy", "dpp", "trainer/strategy: 'dpp' is not one of"),
                ("model/init_args", {"hiden": 5}, "model/init_args: Additional properties"),
                ("model/clas_path", "Classifier", "model: Additional properties"),
                ("optimizer/no_decay", "no", "optimizer/no_decay: 'no' is not of type 'boolean'"),
                ("weights", {"file": "x"}, "weights: Additional properties"),
                ("test_after_fit", 1, "test_after_fit: 1 is not of type 'boolean'"),
                ("seed", 1, ": Additional properties")):
            with self.subTest(path):
                bad = copy.deepcopy(good)
                *parents, last = path.split("/")
                node = bad
                for part in parents:
                    node = node[int(part)] if isinstance(node, list) else node[part]
                node[last] = value
                found = self.mistakes(bad)
                self.assertTrue(any(where in mistake for mistake in found), found)

    def test_sweep_files_have_their_own_keys(self):
        self.assertEqual(self.mistakes({"run": "run.yaml", "space": {"model.lr": {"choice": [1, 2]}}, "max_time": "1h"}), [])
        found = self.mistakes({"run": "run.yaml", "space": {}, "search": {"method": "guess"}, "trials": 3})
        self.assertTrue(any("search/method: 'guess' is not one of" in mistake for mistake in found), found)
        self.assertTrue(any("'trials' was unexpected" in mistake for mistake in found), found)


if __name__ == "__main__":
    unittest.main(verbosity=2)
