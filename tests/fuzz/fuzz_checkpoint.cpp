// libFuzzer target: an input is a checkpoint file. Whatever its bytes, the reader gives a State no larger than the file
// or throws CheckpointError.
//
// A changed byte would be caught by the header's checksum and nothing behind it ever run, so the mutator below repairs
// the checksums of most inputs (forge.h); how many inputs got past them is told at the end.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>

#include "forge.h"
#include "fuzz_support.h"
#include "levin/trainer/checkpoint_file.h"
#include "levin/trainer/values_json.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace levin::fuzz {
namespace {

struct Counts {
  uint64_t inputs = 0, trusted = 0, whole = 0;
};
Counts counts;

// A file in memory that the reader opens by its path.
class ScratchFile {
 public:
  ScratchFile() : fd_(::memfd_create("input", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {}

  void write(std::string_view bytes) const {
    const bool written =
        ::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
    expect(written, "the scratch file can be written");
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

void check_state(const State& state, size_t file_bytes) {
  size_t bytes = 0;
  for (const auto& [name, tensor] : state.tensors) {
    expect(tensor.defined() && tensor.is_contiguous(), "every tensor is whole", name);
    bytes += tensor.nbytes();
  }
  expect(bytes <= file_bytes, "the tensors are no larger than the file");
  expect(values_from_json(values_to_json(state.values)).same_as(state.values), "the values can be saved again");
}

void check_error(const std::string& message, const std::string& path) {
  expect(message.find(path) != std::string::npos, "an error names the file", message);
  expect_good_message(message, 2000);
  check_planted(message, "do not fit its shape");
}

}  // namespace

void run_one(std::string_view input) {
  static const ScratchFile file;
  file.write(input);
  ++counts.inputs;
  if (is_trusted(input)) ++counts.trusted;
  bool whole = false;
  try {
    const State state = read_checkpoint(file.path());
    whole = true;
    ++counts.whole;
    check_state(state, input.size());
  } catch (const CheckpointError& error) {
    check_error(error.what(), file.path());
  }
  try {
    (void)read_checkpoint_values(file.path());
  } catch (const CheckpointError& error) {
    expect(!whole, "what can be read whole can be read in part", error.what());
    check_error(error.what(), file.path());
  }
}

// Some bytes of the file, or of its header as JSON; mostly with checksums repaired.
std::string mutated(std::string file, size_t max_size, unsigned seed) {
  std::minstd_rand random(seed);
  const auto mutate_bytes = [&](std::string& text, size_t most) {
    const size_t size = text.size();
    text.resize(std::max(size, most));
    text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size, std::max(size, most)));
  };
  const unsigned what = random() % 8;
  if (what == 0) {
    change_data(file, mutate_bytes);
  } else if (what <= 3 || !change_header(file, random, mutate_bytes)) {
    mutate_bytes(file, max_size);
  }
  if (random() % 8 != 0) trust(file, /*tensors_too=*/random() % 4 != 0);
  return file;
}

}  // namespace levin::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::atexit([] {
    const auto& counts = levin::fuzz::counts;
    std::fprintf(stderr, "levin: %lu inputs, %lu past the header's checksum, %lu read whole\n", counts.inputs,
                 counts.trusted, counts.whole);
  });
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  levin::fuzz::run_one({reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  const std::string file = levin::fuzz::mutated({reinterpret_cast<const char*>(data), size}, max_size, seed);
  if (file.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, file.data(), file.size());
  return file.size();
}
