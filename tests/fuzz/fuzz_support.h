// What the fuzz targets share. A target calls expect() for what must hold of any input; a broken promise ends the
// process as a crash does, and libFuzzer keeps the input.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace levin::fuzz {

/// Each target defines these; fuzz_main.cpp calls them.
void begin();  // before the first input
void run_one(std::string_view input);

inline void expect(bool holds, std::string_view promise, std::string_view seen = "") {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %.*s\n%.*s\n", static_cast<int>(promise.size()), promise.data(),
               static_cast<int>(seen.size()), seen.data());
  std::abort();
}

/// A message is for a terminal: one line, not endless, nothing that the terminal obeys.
inline void expect_good_message(std::string_view message, size_t most_bytes) {
  expect(!message.empty() && message.size() <= most_bytes, "a message is not empty and not endless", message);
  expect(std::none_of(message.begin(), message.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }),
         "a message holds no control characters", message);
}

/// With LEVIN_FUZZ_PLANTED set, a message deep in the reader counts as a crash: shows that the fuzzer gets there and
/// that a finding is reported.
inline void check_planted(std::string_view message, std::string_view part) {
  static const bool planted = std::getenv("LEVIN_FUZZ_PLANTED") != nullptr;
  expect(!planted || message.find(part) == std::string_view::npos, "planted, to be found", message);
}

/// The parts of an input that lines of "%%%%" separate, at most `most` of them.
inline std::vector<std::string> sections_of(std::string_view input, size_t most) {
  constexpr std::string_view separator = "%%%%\n";
  std::vector<std::string> sections;
  size_t begin = 0;
  while (true) {
    const size_t end = input.find(separator, begin);
    sections.emplace_back(input.substr(begin, end - begin));
    if (end == std::string_view::npos || sections.size() == most) return sections;
    begin = end + separator.size();
  }
}

/// A file in memory that readers open by its path.
class ScratchFile {
 public:
  ScratchFile() : fd_(::memfd_create("input", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {}
  ~ScratchFile() { ::close(fd_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

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

/// Counts inputs, and inputs that were read whole. The summary, printed when the process ends, is read by run_fuzz.py.
struct Counts {
  uint64_t inputs = 0;
  uint64_t whole = 0;

  static Counts& instance() {
    static Counts counts;
    return counts;
  }
  static void print_at_exit() {
    (void)instance();
    std::atexit([] {
      std::fprintf(stderr, "levin: %lu inputs, %lu past the header's checksum, %lu read whole\n", instance().inputs,
                   instance().inputs, instance().whole);
    });
  }
};

}  // namespace levin::fuzz
