// libFuzzer target: an input is a .pt2 file of torch.export, or one of its JSON files within an otherwise good archive:
// the checksums of a zip would hide what is behind them. Whatever the bytes, ExportedProgram loads them or throws
// Error.
//
// The first byte says what the rest is: 'm' models/model.json, 'w' the list of weights, else the whole archive.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "fuzz_support.h"
#include "levin/core/error.h"
#include "levin/models/exported/exported_program.h"
#include "models/forged_archive.h"
#include "support/paths.h"

namespace levin::fuzz {
namespace {

uint64_t inputs = 0, jsons = 0, loaded = 0;

// A file in memory that the reader opens by its path.
const std::string& scratch_path() {
  static const std::string path = "/proc/self/fd/" + std::to_string(::memfd_create("input", MFD_CLOEXEC));
  return path;
}

void write_input(std::string_view input) {
  static const test::ForgedArchive good(test::source_dir() + "/tests/models/data/mlp.pt2");
  const char kind = input.empty() ? 'a' : input[0];
  const std::string rest(input.substr(std::min<size_t>(1, input.size())));
  if (kind != 'm' && kind != 'w') {
    std::ofstream(scratch_path(), std::ios::binary) << rest;
    return;
  }
  ++jsons;
  test::ForgedArchive archive = good;
  archive[kind == 'm' ? "models/model.json" : "data/weights/model_weights_config.json"] = rest;
  archive.write(scratch_path());
}

}  // namespace

void run_one(std::string_view input) {
  ++inputs;
  write_input(input);
  try {
    const ExportedProgram program(scratch_path());
    ++loaded;
    expect(program.named_parameters().size() <= input.size() + 100, "there are no more weights than the file can hold");
  } catch (const Error& error) {
    std::string message = error.what();
    expect(message.find(scratch_path()) != std::string::npos, "an error names the file", message);
    std::replace(message.begin(), message.end(), '\n', ' ');  // a list of what is missing has a line for each
    expect_good_message(message, 100'000);
    check_planted(message, "which nothing before it defines");
  }
}

}  // namespace levin::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::atexit([] {
    using namespace levin::fuzz;
    std::fprintf(stderr, "levin: %lu inputs, %lu past the header's checksum, %lu read whole\n", inputs, jsons, loaded);
  });
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  levin::fuzz::run_one({reinterpret_cast<const char*>(data), size});
  return 0;
}
