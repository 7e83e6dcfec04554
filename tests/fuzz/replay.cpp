// Runs a fuzz target without libFuzzer, in the build of all tests. The target gets every file of a folder unchanged,
// cut short, and with other bytes in some places. The changes are the same in every run. If the process ends early,
// that is a finding. Files whose names begin with "case_" are run unchanged.
//
//   replay_yaml FOLDER…
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "levin/core/files/files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// Only some targets define these functions.
extern "C" [[gnu::weak]] int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" [[gnu::weak]] size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed);

namespace {

std::mt19937_64 engine(1);
size_t inputs = 0;

size_t pick(size_t count) {
  return static_cast<size_t>(engine() % count);
}

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  ++inputs;
}

void run_with_changes(const std::string& input) {
  run(input);
  if (input.empty()) return;
  for (int k = 0; k < 50; ++k) run(input.substr(0, pick(input.size())));
  for (int k = 0; k < 200; ++k) {
    std::string changed = input;
    for (size_t n = 1 + pick(4); n > 0; --n) changed[pick(changed.size())] = static_cast<char>(pick(256));
    if (k % 4 == 0) changed.insert(pick(changed.size()), changed.substr(pick(changed.size()), 1 + pick(64)));
    run(changed);
  }
  if (LLVMFuzzerCustomMutator == nullptr) return;
  for (unsigned k = 0; k < 200; ++k) {
    std::string changed = input;
    const size_t most = 2 * input.size() + 64;
    changed.resize(most);
    changed.resize(LLVMFuzzerCustomMutator(reinterpret_cast<uint8_t*>(changed.data()), input.size(), most, k));
    run(changed);
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t /*max_size*/) {
  if (size > 0) data[pick(size)] = static_cast<uint8_t>(pick(256));
  return size;
}

int main(int argc, char** argv) {
  if (LLVMFuzzerInitialize != nullptr) LLVMFuzzerInitialize(&argc, &argv);
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::exists(argv[i])) continue;  // a target without a corpus
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    const bool is_case = std::filesystem::path(file).filename().string().starts_with("case_");
    is_case ? run(levin::read_file(file)) : run_with_changes(levin::read_file(file));
  }
  std::printf("%zu inputs of %zu files\n", inputs, files.size());
  return files.empty() ? 1 : 0;
}
