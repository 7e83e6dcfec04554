"""The recipes in packaging/ agree with CMake's files: in the version, the parts, and the packages of each part.

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

# A package by the name that CMake or pkg-config finds it by, and its names in Conan, vcpkg and conda; None: no recipe names it
# (packaging/README.md), or, for vcpkg's pkg-config, the port acquires it.
NAMES = {
    "Gloo": (None, "gloo", None), "PkgConfig": ("pkgconf", None, "pkg-config"), "Threads": (None, None, None),
    "libxxhash": ("xxhash",) * 3, "nlohmann_json": ("nlohmann_json", "nlohmann-json", "nlohmann_json"), "spdlog": ("spdlog",) * 3,
    "yaml-cpp": ("yaml-cpp",) * 3,
    "CURL": ("libcurl", "curl", "libcurl"), "JPEG": ("libjpeg", "libjpeg-turbo", "libjpeg-turbo"), "OpenSSL": ("openssl",) * 3,
    "PNG": ("libpng",) * 3, "SQLite3": ("sqlite3", "sqlite3", "libsqlite"),
    "SentencePiece": ("sentencepiece", "sentencepiece", "libsentencepiece"), "ZLIB": ("zlib",) * 3, "hdf5-serial|hdf5": ("hdf5",) * 3,
    "libpcre2-8": ("pcre2",) * 3, "libzstd": ("zstd",) * 3, "libwebp": ("libwebp", "libwebp", "libwebp-base"),
    "libwebpdemux": ("libwebp", "libwebp", "libwebp-base"), "libutf8proc": ("utf8proc", "utf8proc", "libutf8proc"), "ncursesw": ("ncurses",) * 3,
    "oniguruma": ("oniguruma",) * 3,
}
CONAN, VCPKG, CONDA = range(3)


def named(part, manager):
    """The names of what a part needs, sorted."""
    return sorted({NAMES[package][manager] for package in levin_parts.packages(SOURCES)[part]} - {None})


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
macro(vcpkg_find_acquire_program name)
  set(${name} "the ${name}")
endmacro()
foreach(name vcpkg_cmake_install vcpkg_cmake_config_fixup vcpkg_fixup_pkgconfig vcpkg_copy_tools vcpkg_install_copyright)
  function(${name})
  endfunction()
endforeach()
"""


class Recipes(unittest.TestCase):
    def test_parts_were_found(self):
        self.assertEqual(levin_parts.needs(SOURCES)["tools"], ["models", "tracking", "streams"])

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

    def test_conan_brings_what_each_part_needs(self):
        text = (PACKAGING / "conan/conanfile.py").read_text()
        table = next(node.value for node in ast.parse(text).body if isinstance(node, ast.Assign) and node.targets[0].id == "PARTS")
        for part, (packages, _) in ast.literal_eval(table).items():
            self.assertEqual(sorted(name.split("/")[0] for name in packages), named(part, CONAN), part)
        own = text[text.index("    def requirements"):text.index("    def generate")]
        self.assertEqual(sorted(re.findall(r'"([\w-]+)/\[', own)), named("core", CONAN))
        profile = (PACKAGING / "conan/debian12.profile").read_text()
        self.assertEqual({name for part in levin_parts.packages(SOURCES) for name in named(part, CONAN)},
                         set(re.findall(r"(?m)^([\w-]+)/", profile)))

    def test_vcpkg_brings_what_each_part_needs(self):
        port = json.loads((PACKAGING / "vcpkg/vcpkg.json").read_text())
        for part, listed in {**port["features"], "core": port}.items():
            self.assertEqual(sorted(name for name in listed["dependencies"] if isinstance(name, str)), named(part, VCPKG), part)

    def test_conda_brings_what_all_parts_need(self):
        recipe = (PACKAGING / "conda/recipe.yaml").read_text()
        needed = recipe[recipe.index("\nrequirements:"):recipe.index("\n  run:")]
        core, others = needed.split("- if: parts")
        listed = [set(re.findall(r"(?m)^ +- ([\w-]+)( .*)?$", text)) for text in (core, others)]
        core, others = ({name for name, _ in found} for found in listed)
        self.assertEqual(core - {"cmake", "ninja", "libtorch"}, set(named("core", CONDA)))
        self.assertEqual(others, {name for part in levin_parts.needs(SOURCES) for name in named(part, CONDA)})

    def test_conda_takes_the_libtorchs_that_cmake_takes(self):
        limits = dict(re.findall(r"set\(_levin_torch_(oldest|newest) (\S+)\)", (SOURCES / "cmake/LevinTorch.cmake").read_text()))
        major, minor = limits["newest"].split(".")
        self.assertIn(f"    - libtorch >={limits['oldest']},<{major}.{int(minor) + 1}\n", (PACKAGING / "conda/recipe.yaml").read_text())

    def test_vcpkgs_port_configures_the_wanted_parts(self):
        with tempfile.TemporaryDirectory(prefix="levin-port-", dir="/tmp") as folder:
            script = pathlib.Path(folder, "port.cmake")
            script.write_text(f'{PORT}set(FEATURES core text)\ninclude("{PACKAGING}/vcpkg/portfile.cmake")\n')
            output = subprocess.run([CMAKE, "-P", script], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertIn(f"configure SOURCE_PATH;{SOURCES.resolve()};OPTIONS;", output)
        for part in levin_parts.needs(SOURCES):
            self.assertIn(f"-DLEVIN_{part.upper()}={'ON' if part == 'text' else 'OFF'};", output)
        self.assertIn("-DLEVIN_BUILD_TOOL=OFF;-DLEVIN_BUILD_TESTS=OFF", output)
        self.assertIn("-DPKG_CONFIG_EXECUTABLE=the PKGCONFIG", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
