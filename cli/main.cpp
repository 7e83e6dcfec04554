// The `levin` tool's program: sets what LibTorch's threads read when they are loaded, and only then loads Levin.
//
// Threads of OpenMP spin while they wait for each other. Where another program has one of their cores, a step takes
// forty times as long as it must; with a limit it takes what the cores that are left give. Environments that say how to
// wait (GOMP_SPINCOUNT, OMP_WAIT_POLICY) are left alone.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "levin/core/standard_streams.h"

namespace {
constexpr int kCannotStart = 1;
}

int main(int argc, char** argv) {
  levin::open_standard_streams();
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", "10000", /*overwrite=*/0);
  void* tool = dlopen("liblevin_tool.so", RTLD_NOW | RTLD_GLOBAL);  // by this program's own search path
  void* run = tool == nullptr ? nullptr : dlsym(tool, "levin_tool_main");
  if (run == nullptr) {
    std::fprintf(stderr,
                 "error: levin cannot be loaded: %s. Its libraries lie where they were built or installed: install "
                 "Levin again if they were moved.\n",
                 dlerror());
    return kCannotStart;
  }
  return reinterpret_cast<int (*)(int, char**)>(run)(argc, argv);
}
