// A library that `levin` opens instead of its own if the loader finds it first. It opens the tool's real library and
// then forks a process for each run that is requested. LibTorch is thus loaded once for many runs of the tool, and each
// run is still a separate `levin` process. See levin_runs.py.
#include <dlfcn.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/forked_runs.h"

namespace {
constexpr int kCannotStart = 1;
constexpr int kCannotServe = 69;  // known to levin_runs.py

// The numbers that /proc/self/stat has after the program's name, which may hold spaces.
std::vector<unsigned long> numbers_of_this_process() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream rest(text.substr(text.rfind(')') + 2));
  std::string state;
  rest >> state;
  std::vector<unsigned long> numbers;
  for (std::string argument; rest >> argument;) numbers.push_back(std::strtoul(argument.c_str(), nullptr, 10));
  return numbers;
}

// From now on /proc/self/cmdline shows these arguments: the tool reads its command line there. False on kernels that
// do not allow it.
bool show_as_command_line(const std::vector<std::string>& arguments) {
  static std::string text;
  text.clear();
  for (const std::string& argument : arguments) text += argument + '\0';
  const std::vector<unsigned long> numbers = numbers_of_this_process();
  constexpr size_t kFirst = 4;  // proc(5) counts from 1, with the process, its name and its state as the first three
  if (numbers.size() + kFirst <= 51) return false;
  prctl_mm_map map = {};
  map.start_code = numbers[26 - kFirst];
  map.end_code = numbers[27 - kFirst];
  map.start_stack = numbers[28 - kFirst];
  map.start_data = numbers[45 - kFirst];
  map.end_data = numbers[46 - kFirst];
  map.start_brk = numbers[47 - kFirst];
  map.brk = reinterpret_cast<unsigned long>(::sbrk(0));
  map.arg_start = reinterpret_cast<unsigned long>(text.data());
  map.arg_end = map.arg_start + text.size();
  map.env_start = numbers[50 - kFirst];
  map.env_end = numbers[51 - kFirst];
  map.exe_fd = static_cast<unsigned>(-1);  // the program stays
  return ::prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0) == 0;
}
}  // namespace

extern "C" int levin_tool_main(int argc, char** argv) {
  void* tool = dlopen(LEVIN_TOOL_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
  void* found = tool == nullptr ? nullptr : dlsym(tool, "levin_tool_main");
  if (found == nullptr) {
    std::fprintf(stderr, "error: levin cannot be served: %s\n", dlerror());
    return kCannotStart;
  }
  const auto run = reinterpret_cast<int (*)(int, char**)>(found);
  if (!show_as_command_line({argv, argv + argc})) return kCannotServe;
  const int status = levin::test::serve_runs([&](std::vector<std::string> arguments) {
    if (!show_as_command_line(arguments)) return kCannotServe;
    if (std::getenv("OMP_WAIT_POLICY") == nullptr)
      setenv("GOMP_SPINCOUNT", "10000", /*overwrite=*/0);  // as cli/main.cpp
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    return run(static_cast<int>(arguments.size()), pointers.data());
  });
  std::_Exit(status);  // this process has run nothing whose end matters
}
