"""A class that is registered or passed wrongly is a compile error that begins with a plain sentence.

  register_mistakes_test.py COMPILER INCLUDE_FOLDER [unittest's arguments]
"""

import shutil
import subprocess
import sys
import unittest

COMPILER, INCLUDES = sys.argv.pop(1), sys.argv.pop(1)

PROGRAM = """
#include "levin/core/options/registry.h"
namespace levin {{
struct Greeter {{
  virtual ~Greeter() = default;
  virtual int greet() = 0;
  static const char* registry_name() {{ return "greeter"; }}
}};
}}
{}
LEVIN_REGISTER(Greeter, Mine, "a greeter");
"""


class RegisterMistakes(unittest.TestCase):
    def errors(self, text, compiler=COMPILER):
        done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-I", INCLUDES, "-x", "c++", "-"],
                              input=PROGRAM.format(text), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return [line for line in done.stdout.splitlines() if " error: " in line]

    def test_a_class_without_mistakes_compiles(self):
        self.assertEqual(self.errors("struct Mine : levin::Greeter { int greet() override { return 1; } };"), [])

    @unittest.skipUnless(shutil.which("clang++-14"), "clang++-14 is not installed")
    def test_it_compiles_with_clang_14_which_lacks_std_source_location(self):
        good = "struct Mine : levin::Greeter { int greet() override { return 1; } };"
        self.assertEqual(self.errors(good, "clang++-14"), [])

    def test_a_class_of_another_kind_is_one_error(self):
        found = self.errors("struct Mine { int greet() { return 1; } };")
        self.assertEqual(len(found), 1, found)
        self.assertIn("must derive publicly from the interface that the macro names", found[0])

    def test_a_class_that_is_still_abstract_or_has_a_different_constructor_is_reported(self):
        for text in ("struct Mine : levin::Greeter {};",
                     "struct Mine : levin::Greeter { explicit Mine(int) {} int greet() override { return 1; } };"):
            found = self.errors(text)
            self.assertIn("needs a public constructor that takes its Options", found[0])

    def test_options_without_fields_say_so(self):
        found = self.errors("struct Mine : levin::Greeter { struct Options { int a = 0; }; explicit Mine(Options) {} "
                            "int greet() override { return 1; } };")
        self.assertIn("must be a struct with a static function fields()", found[0])

    def test_an_object_with_a_state_is_not_copied_silently(self):
        use = ("struct Mine : levin::Greeter {{ int greet() override {{ return 1; }} static constexpr bool "
               "kOptionsMayCopy = {}; }}; Mine mine; levin::ComponentList<levin::Greeter> list = {{{}}};")
        found = self.errors(use.format("false", "mine"))
        self.assertEqual(len(found), 1, found)
        self.assertIn("pass the std::shared_ptr, or pass std::move(object)", found[0])
        for copied, passed in (("true", "mine"), ("false", "Mine()"), ("false", "std::make_shared<Mine>()")):
            self.assertEqual(self.errors(use.format(copied, passed)), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
