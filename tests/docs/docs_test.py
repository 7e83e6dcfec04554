"""Plants each kind of mistake in a small tree and sees docs.py name it."""
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).parent


class Docs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("dev", "#!/bin/sh\nprintf 'usage:\\n\\n  build [P]  builds\\n  check  tests\\n'\n").chmod(0o755)
        self.write("docs/other.md", "# Some `code`, and more\n")

    def write(self, file, text):
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def check(self):
        done = subprocess.run([sys.executable, HERE / "docs.py", "check", self.root], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def assert_found(self, *parts):
        status, output = self.check()
        self.assertEqual((status, len(output.splitlines())), (1, 1), output)
        for part in parts:
            self.assertIn(part, output)

    def test_links_words_and_blocks_that_agree_pass(self):
        self.write("README.md", "[a](docs/other.md) [b](docs/other.md#some-code-and-more) [c](https://x.org/none) "
                                "`[d](none)`\n```sh\n./dev build # [e](none)\n```\n")
        self.assertEqual(self.check()[0], 0, self.check()[1])

    def test_a_dead_link_is_named_with_its_line(self):
        self.write("docs/a.md", "text\n\n[over two\nlines](../docs/gone.md)\n")
        self.assert_found("docs/a.md:3", "../docs/gone.md")

    def test_a_dead_anchor_is_named(self):
        self.write("README.md", "[a](docs/other.md#gone)\n")
        self.assert_found("README.md:1", "#gone")

    def test_dead_images_titles_definitions_and_html_links_are_named(self):
        for text in ("![a](gone.svg)", '[a](gone.svg "title")', "[a][b]\n\n[b]: gone.svg", '<img alt="a" src="gone.svg">',
                     '<a href="gone.svg">a</a>'):
            self.write("docs/a.md", f"{text}\n")
            self.assert_found("docs/a.md:", "gone.svg")

    def test_headings_of_the_same_words_are_numbered(self):
        self.write("docs/a.md", "# One\n# Two\n# Two\n[a](#two) [b](#two-1)\n")
        self.assertEqual(self.check()[0], 0, self.check()[1])
        self.write("docs/a.md", "# One\n# Two\n# Two\n[a](#two) [b](#two-2)\n")
        self.assert_found("docs/a.md:4", "#two-2")

    def test_the_site_lists_every_page_once(self):
        self.write("docs/site/order.txt", "## Learn\ndocs/other.md\n")
        self.assertEqual(self.check()[0], 0, self.check()[1])
        self.write("docs/articles/new.md", "# New\n")
        self.assert_found("order.txt", "docs/articles/new.md is not listed")
        self.write("docs/site/order.txt", "## Learn\ndocs/other.md\n## Articles\ndocs/articles/new.md\ndocs/gone.md\n")
        self.assert_found("order.txt", "docs/gone.md does not exist")

    def test_the_index_page_of_a_group_links_to_all_its_pages(self):
        self.write("docs/site/order.txt", "## Learn\ndocs/other.md\ndocs/a.md\n")
        self.write("docs/a.md", "# A\n")
        self.assert_found("docs/other.md", "a link to docs/a.md")
        self.write("docs/other.md", "# Other\n[a](a.md#a)\n")
        self.assertEqual(self.check()[0], 0, self.check()[1])

    def test_numbers_that_pages_quote_agree(self):
        self.write("README.md", "<!-- same\nstart_ms: 274\ncompile_s: 15\n-->\nIt takes 274 ms, compiled in 15 s.\n")
        page = "# A\n\n<!-- same\nstart_ms: 274\ncompile_s: 15.1\n-->\n| 274 | **15.1** |\n```sh\n# no heading\n```\n## B\n"
        self.write("docs/a.md", page)
        self.assertEqual(self.check()[0], 0, self.check()[1])
        self.write("docs/a.md", page.replace("15.1", "15.6"))
        self.assert_found("docs/a.md:5", "compile_s is 15.6 here and 15 in README.md:3")
        self.write("docs/a.md", page.replace("| 274", "| 275"))
        self.assert_found("docs/a.md:4", "no 274")
        self.write("docs/a.md", page.replace("-->\n|", "-->\n## B\n|").replace("compile_s: 15.1\n", ""))
        status, output = self.check()
        self.assertIn("docs/a.md:4: start_ms: the text up to the next heading has no 274", output)
        self.assertIn("README.md:3: compile_s is quoted only here", output)

    def test_an_unknown_word_of_dev_is_named(self):
        self.write("README.md", "`./dev check` and\n`./dev deploy`\n")
        self.assert_found("README.md:2", "deploy")

    def test_a_yaml_block_is_the_file_it_names(self):
        block = "```yaml\n# configs/a.yaml\na: 1   # one\nb: {c: 2}\n```\n"
        self.write("README.md", block)
        self.assertEqual(self.check()[0], 0)  # not enabled
        self.write("tests/docs/enabled.txt", "# kind file\nyaml README.md\n")
        self.assert_found("README.md:2", "configs/a.yaml does not exist")
        self.write("configs/a.yaml", "# what it is\na: 1\n\nb:  {c: 2}\n")
        self.assertEqual(self.check()[0], 0, self.check()[1])
        self.write("configs/a.yaml", "a: 1\nb: {c: 3}\n")
        self.assert_found("README.md:2", "differs")

    def test_a_loop_over_an_element_of_a_temporary_is_named(self):
        self.write("README.md", "```cpp\nfor (auto x : all()) {}\nconst auto r = t.test(m);\nfor (auto& [n, v] : r[0]) {}\n"
                                "for (int k = 0; k < t.test(m)[0].size(); ++k) {}\nfor (auto b : all_of(t.test(m)[0])) {}\n```\n")
        self.assertEqual(self.check()[0], 0, self.check()[1])
        for over in ("trainer.test(model, data)[0]", "t.test(m).at(0)", "run().front()", "f(\n  x)[i]"):
            self.write("examples/a.cpp", f"int x;\nfor (const auto& [n, v] : {over}) use(n);\n")
            self.assert_found("examples/a.cpp:2", "an element of a temporary", " ".join(over.split()))

    def test_programs_are_the_first_blocks_with_main_each_in_its_namespace(self):
        one = self.write("README.md", "```cpp\nint x;\n```\n```sh\nint main\n```\n```cpp\n#include <a>\nint main() {}\n```\n")
        other = self.write("docs/b.md", "```cpp\n#include <a>\n#include <b>\nint main() { f(); }\n```\n")
        out = self.root / "out.cpp"
        subprocess.run([sys.executable, HERE / "docs.py", "programs", out, one, other], check=True)
        text = out.read_text()
        self.assertTrue(text.startswith("#include <a>\n#include <b>\n"), text)
        self.assertNotIn("int x;", text)
        for number, (body, page) in enumerate((("int main() {}", "README.md"), ("int main() { f(); }", "b.md"))):
            self.assertRegex(text, f"namespace page_{number} {{\\s+{re.escape(body)}\\s+}}")
            self.assertIn(f'page.ends_with("/{page}")) return page_{number}::main()', text)

    def test_diffs_after_a_program_are_applied_one_after_another(self):
        page = self.write("docs/b.md", "```cpp\n#include <a>\nint main() {\n  f();\n  g();\n}\n```\n"
                                       "```diff\n-  f();\n+  h();\n@@\n   g();\n+  g(1);\n```\n```diff\n-#include <a>\n+#include <b>\n```\n")
        out = self.root / "out.cpp"
        subprocess.run([sys.executable, HERE / "docs.py", "programs", out, page], check=True)
        text = out.read_text()
        self.assertTrue(text.startswith("#include <a>\n#include <b>\n"), text)
        for number, (body, name) in enumerate((("f();g();", "b.md"), ("h();g();g(1);", "b.md#1"), ("h();g();g(1);", "b.md#2"))):
            self.assertIn(f"namespacepage_{number}{{intmain(){{{body}return0;}}}}", re.sub(r"\s", "", text))
            self.assertIn(f'page.ends_with("/{name}")) return page_{number}::main()', text)

    def test_a_diff_of_other_lines_is_an_error(self):
        for lines in ("-  g();", "-  f();\n-  f();", "   f();", "+  g();"):
            page = self.write("docs/b.md", f"```cpp\nint main() {{\n  f();\n  f();\n}}\n```\n```diff\n{lines}\n```\n")
            done = subprocess.run([sys.executable, HERE / "docs.py", "programs", self.root / "out.cpp", page],
                                  capture_output=True, text=True)
            self.assertEqual("not exactly once" in done.stderr, lines != "-  f();\n-  f();", done.stderr)

    def test_pages_that_register_a_class_of_the_same_name_are_an_error(self):
        one, other = (self.write(f"docs/{name}.md", "```cpp\nLEVIN_REGISTER_MODEL(Net, \"a net\");\nint main() {}\n```\n") for name in "ab")
        done = subprocess.run([sys.executable, HERE / "docs.py", "programs", self.root / "out.cpp", one, other], capture_output=True,
                              text=True)
        self.assertIn("b.md: ", done.stderr)
        self.assertIn("a.md registers a class Net too", done.stderr)

    def test_classes_are_all_blocks_that_open_with_the_include(self):
        include = "#include <levin/levin.h>\n"
        source = self.write("README.md", f"```cpp\n{include}class A {{}};\n```\n```cpp\nint x = …;\n```\n"
                                         f"```cpp\n{include}int main() {{}}\n```\n```cpp\n{include}class B {{}};\n```\n")
        out = self.root / "out.h"
        subprocess.run([sys.executable, HERE / "docs.py", "classes", source, out], check=True)
        self.assertEqual(out.read_text(), f"{include}class A {{}};\n\n{include}class B {{}};\n")
        source = self.write("README.md", "```cpp\nint x;\n```\n")
        done = subprocess.run([sys.executable, HERE / "docs.py", "classes", source, out], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no C++ block opens with", done.stderr)

    def test_a_program_runs_in_a_folder_that_is_gone_afterwards(self):
        program = self.write("program", f"#!/bin/sh\ntouch made; pwd >{self.root}/where; [ $1 = page ] && exit 3\n")
        program.chmod(0o755)
        done = subprocess.run([sys.executable, HERE / "docs.py", "run", program, "page"], check=False)
        self.assertEqual(done.returncode, 3)
        self.assertFalse(Path((self.root / "where").read_text().strip()).exists())

    def assert_site(self, *parts):
        done = subprocess.run([sys.executable, HERE / "site_links.py", self.root / "site"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (1 if parts else 0, ""), done.stdout)
        for part in parts:
            self.assertIn(part, done.stdout)

    def test_dead_links_and_anchors_of_a_built_site_are_named(self):
        self.write("site/api/classa.html", '<a id="m1"></a><a href="classa.html#made-by-doxygen"></a>')
        self.write("site/docs/a.html", '<h1 id="one"></h1><a href="../index.html"></a><a href="https://x.org/none"></a>')
        good = '<a href="docs/a.html#one"></a><a href="api/classa.html#m1"></a>'
        self.write("site/index.html", good)
        self.assert_site()
        for dead in ('<a href="docs/gone.html">', '<img src="gone.svg">', '<a href="docs/a.html#two">',
                     '<a href="api/classb.html">', '<a href="api/classa.html#m2">', '<a href="#none">'):
            self.write("site/index.html", good + dead)
            self.assert_site("index.html: ", dead.split('"')[1])


if __name__ == "__main__":
    unittest.main()
