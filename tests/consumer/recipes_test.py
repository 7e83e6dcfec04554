"""The recipes in packaging/ agree with CMake's files: in the version, the parts, and what each part needs.

  recipes_test.py SOURCES CMAKE [unittest's arguments]
"""
import ast
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCES, CMAKE = (pathlib.Path(sys.argv.pop(1)) for _ in range(2))
sys.dont_write_bytecode = True
import levin_parts

PACKAGING = SOURCES / "packaging"

# A CMake script: the port with stand-ins for vcpkg's functions, which record what it configures.
PORT = """
cmake_minimum_required(VERSION 3.25)
set(CURRENT_PACKAGES_DIR "${CMAKE_CURRENT_BINARY_DIR}/packages")
function(vcpkg_check_features)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUT_FEATURE_OPTIONS" "FEATURES")
  while(arg_FEATURES)
    list(POP_FRONT arg_FEATURES feature option)
    if(feature IN_LIST FEATURES)
      list(APPEND options "-D${option}=ON")
    else()
      list(APPEND options "-D${option}=OFF")
    endif()
  endwhile()
  set(${arg_OUT_FEATURE_OPTIONS} "${options}" PARENT_SCOPE)
endfunction()
function(vcpkg_cmake_configure)
  message(STATUS "configure ${ARGN}")
endfunction()
foreach(name vcpkg_cmake_install vcpkg_cmake_config_fixup vcpkg_fixup_pkgconfig vcpkg_copy_tools vcpkg_install_copyright)
  function(${name})
  endfunction()
endforeach()
"""


class Recipes(unittest.TestCase):
    def test_parts_were_found(self):
        self.assertEqual(levin_parts.needs(SOURCES)["tools"], ["models", "tracking"])

    def test_the_versions_are_cmakes(self):
        version = re.search(r"^project\(levin VERSION ([0-9.]+) ", (SOURCES / "CMakeLists.txt").read_text(), re.M)[1]
        self.assertEqual(json.loads((PACKAGING / "vcpkg/vcpkg.json").read_text())["version"], version)
        self.assertIn(f"\n  version: {version}\n", (PACKAGING / "conda/recipe.yaml").read_text())

    def test_vcpkgs_features_are_the_parts(self):
        port = json.loads((PACKAGING / "vcpkg/vcpkg.json").read_text())
        features = {name: [other for needed in feature["dependencies"] if isinstance(needed, dict)
                           for other in needed["features"]] for name, feature in port["features"].items()}
        self.assertEqual(features, levin_parts.needs(SOURCES))
        self.assertEqual(sorted(port["default-features"]), sorted(levin_parts.needs(SOURCES)))

    def test_conans_options_are_the_parts(self):
        tree = ast.parse((PACKAGING / "conan/conanfile.py").read_text())
        table = next(node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "PARTS")
        self.assertEqual({name: needs for name, (_, needs) in ast.literal_eval(table).items()}, levin_parts.needs(SOURCES))

    def test_vcpkgs_port_configures_the_wanted_parts(self):
        with tempfile.TemporaryDirectory(prefix="levin-port-", dir="/tmp") as folder:
            script = pathlib.Path(folder, "port.cmake")
            script.write_text(f'{PORT}set(FEATURES core text)\ninclude("{PACKAGING}/vcpkg/portfile.cmake")\n')
            output = subprocess.run([CMAKE, "-P", script], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertIn(f"configure SOURCE_PATH;{SOURCES.resolve()};OPTIONS;", output)
        for part in levin_parts.needs(SOURCES):
            self.assertIn(f"-DLEVIN_{part.upper()}={'ON' if part == 'text' else 'OFF'};", output)
        self.assertIn("-DLEVIN_BUILD_TOOL=OFF;-DLEVIN_BUILD_TESTS=OFF", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
