// The `levin` tool's program: sets variables that LibTorch's threads read when they are loaded, and then loads Levin.
//
// Threads of OpenMP spin while they wait for each other. If another program uses one of their cores, a step takes forty
// times as long as necessary; with a limit the slowdown matches the remaining cores. If the environment configures this
// (GOMP_SPINCOUNT, OMP_WAIT_POLICY), nothing is changed.
#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "levin/core/process/program_start.h"

namespace {
constexpr int kCannotStart = 1;

// The first folder of a path that this user may not enter, or the path itself if it cannot be read; "" if it is
// accessible.
std::string closed_part_of(const std::string& path) {
  for (std::size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    if (access(folder.c_str(), X_OK) != 0) return errno == EACCES ? folder : "";
  }
  return access(path.c_str(), R_OK) != 0 && errno == EACCES ? path : "";
}

constexpr const char* kNoMemory =
    "There is not enough memory for LibTorch: free some, or raise the limit of this process (ulimit -v, ulimit -d).";

// LibTorch registers its operators while it is loaded, where no caller can catch an exception.
[[noreturn]] void end_while_loading() {
  std::string_view cause = "an exception of an unknown type";
  std::string_view remedy = ".";
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    cause = "an allocation failed. ";
    remedy = kNoMemory;
  } catch (const std::exception& error) {
    cause = error.what();
  } catch (...) {
  }
  for (const std::string_view text :
       {std::string_view("error: levin cannot be loaded: "), cause, remedy, std::string_view("\n")}) {
    if (write(STDERR_FILENO, text.data(), text.size()) < 0) break;
  }
  _exit(kCannotStart);
}

// The remedy if the libraries cannot be loaded: the loader also reports "No such file" for files without permission.
std::string remedy(const std::string& reason) {
  for (const char* words : {"failed to map", "annot allocate memory"}) {
    if (reason.find(words) != std::string::npos) return kNoMemory;
  }
  const std::string torch = LEVIN_TORCH_LIBRARIES "/libtorch_cpu.so";
  if (const std::string closed = closed_part_of(torch); !closed.empty()) {
    return "LibTorch is in " LEVIN_TORCH_LIBRARIES ", and this user has no access to " + closed +
           ". Put LibTorch where all users can read it, then build and install Levin again: as root, "
           "./dev setup --system && ./dev build, then cmake --install.";
  }
  if (access(torch.c_str(), R_OK) != 0) {
    return "LibTorch is no longer in " LEVIN_TORCH_LIBRARIES
           ": restore it (./dev setup), or build and install Levin again.";
  }
  return "Its libraries lie where they were built or installed: install Levin again if they were moved.";
}
}  // namespace

int main(int argc, char** argv) {
  levin::open_standard_streams();
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", "10000", /*overwrite=*/0);
  const std::terminate_handler usual = std::set_terminate(end_while_loading);
  void* tool = dlopen("liblevin_tool.so", RTLD_NOW | RTLD_GLOBAL);  // by this program's own search path
  void* run = tool == nullptr ? nullptr : dlsym(tool, "levin_tool_main");
  std::set_terminate(usual);
  if (run == nullptr) {
    const std::string reason = dlerror();
    std::fprintf(stderr, "error: levin cannot be loaded: %s. %s\n", reason.c_str(), remedy(reason).c_str());
    return kCannotStart;
  }
  return reinterpret_cast<int (*)(int, char**)>(run)(argc, argv);
}
