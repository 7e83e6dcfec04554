"""Levin for Conan 2: `conan create packaging/conan -o levin/*:torch_dir=FOLDER`. LibTorch is not a requirement, because
Levin needs 2.6 or newer: torch_dir names a folder with include/ and lib/, or a site-packages with torch. Nor are the headers of
Gloo, for which Conan has no recipe: Debian's libgloo-dev has them."""
import re
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy
from conan.tools.gnu import PkgConfigDeps

# What each part links and which parts it needs: as in cmake/LevinParts.cmake.
PARTS = {
    "arrays": (["hdf5/[>=1.10]"], []),
    "images": (["libpng/[>=1.6]", "libjpeg/[>=9]", "libwebp/[>=1.2]"], []),
    "text": (["oniguruma/[>=6.9]", "utf8proc/[>=2.0]", "openssl/[>=3]", "zlib/[>=1.2]", "sentencepiece/[>=0.1.97]"], []),
    "downloads": (["libcurl/[>=7.63]", "openssl/[>=3]", "zlib/[>=1.2]"], []),
    "streams": (["zstd/[>=1.4]", "zlib/[>=1.2]"], ["images", "downloads"]),
    "models": (["pcre2/[>=10.22]", "zlib/[>=1.2]"], ["text"]),
    "tracking": (["sqlite3/[>=3.8]"], ["downloads"]),
    "c": ([], []),
    "tools": (["ncurses/[>=6]"], ["models", "tracking", "streams"]),
}


class Levin(ConanFile):
    name = "levin"
    description = "A trainer framework for LibTorch"
    license = "Apache-2.0"
    package_type = "shared-library"
    settings = "os", "compiler", "build_type", "arch"
    options = {**{part: [True, False] for part in PARTS}, "torch_dir": ["", "ANY"]}
    default_options = {**{part: True for part in PARTS}, "torch_dir": ""}

    @property
    def _tree(self):
        return Path(self.recipe_folder).parent.parent

    def set_version(self):
        self.version = re.search(r"^project\(levin VERSION ([0-9.]+) ", (self._tree / "CMakeLists.txt").read_text(), re.M)[1]

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "CMakePresets.json", "LICENSE", "levin.h", "train.h", "*/*"):
            copy(self, pattern, self._tree, self.export_sources_folder, excludes=("build/*", ".git/*", "packaging/*"))

    def layout(self):
        cmake_layout(self)

    def _parts(self):
        return [part for part in PARTS if self.options.get_safe(part)]

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("Levin runs on Linux")
        for part in self._parts():
            for other in PARTS[part][1]:
                if other not in self._parts():
                    raise ConanInvalidConfiguration(f"the part {part} needs the part {other}")

    def requirements(self):
        self.requires("nlohmann_json/[>=3.11]", transitive_headers=True)
        wanted = {"yaml-cpp/[>=0.7]", "spdlog/[>=1.10]", "xxhash/[>=0.8]"}
        for part in self._parts():
            wanted.update(PARTS[part][0])
        for name in sorted(wanted):
            self.requires(name)

    def build_requirements(self):
        self.tool_requires("pkgconf/[>=1.7]")

    def generate(self):
        CMakeDeps(self).generate()
        PkgConfigDeps(self).generate()
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables.update({f"LEVIN_{name}": False for name in (
            "ALL_PARTS", "BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_BENCH")})
        toolchain.cache_variables.update({f"LEVIN_{part.upper()}": True for part in self._parts()})
        toolchain.cache_variables["LEVIN_BUILD_TOOL"] = "tools" in self._parts()
        if self.options.torch_dir:
            toolchain.cache_variables["LEVIN_TORCH_DIR"] = str(self.options.torch_dir)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")  # find_package(levin) reads Levin's own levinConfig.cmake
        self.cpp_info.builddirs = ["lib/cmake/levin"]
