// What a header may cost: a small multiple of its size, however it is filled. Measured in a child, whose peak starts
// where the child does.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/safetensors.h"
#include "levin/core/files/files.h"
#include "support/sanitized.h"
#include "support/temporary_folder.h"

namespace levin::header_cost_test {
namespace {

using test::TemporaryFolder;

constexpr size_t kHeaderBytes = 40'000'000;
constexpr size_t kMaxTimesTheHeader = test::kSanitized ? 20 : 6;  // a sanitizer adds to each allocation

size_t peak_kib() {
  std::ifstream status("/proc/self/status");
  std::string word;
  size_t kib = 0;
  while (status >> word && word != "VmHWM:") continue;
  status >> kib;
  return kib;
}

// By how much the peak of this process' memory rises while a child does it; 0 if the child could not measure.
size_t bytes_of(const std::function<void()>& action) {
  int ends[2];
  if (::pipe(ends) != 0) return 0;
  const pid_t child = ::fork();
  if (child == 0) {
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
    const size_t before = peak_kib();
    action();
    const size_t bytes = (peak_kib() - before) << 10;
    ::_exit(::write(ends[1], &bytes, sizeof bytes) == sizeof bytes ? 0 : 1);
  }
  ::close(ends[1]);
  size_t bytes = 0;
  if (::read(ends[0], &bytes, sizeof bytes) != sizeof bytes) bytes = 0;
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return bytes;
}

std::string with_length(const std::string& header) {
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  return file + header;
}

std::string tensors_of(size_t bytes) {
  std::string header = "{";
  header.reserve(bytes + 100);
  for (int i = 0; header.size() < bytes; ++i) {
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  return header + "}";
}

std::string metadata_of(size_t bytes, size_t value_bytes) {
  std::string header = R"({"__metadata__":{)";
  header.reserve(bytes + value_bytes + 100);
  for (int i = 0; header.size() < bytes; ++i) {
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"" + std::string(value_bytes, 'x') + '"';
  }
  return header + "}}";
}

void expect_small_cost(const std::string& header, const std::string& what) {
  const TemporaryFolder folder;
  write_file_durably(folder / "a", with_length(header));
  const size_t bytes = bytes_of([&] {
    try {
      const SafetensorsFile file(folder / "a");
    } catch (const CheckpointError&) {
      // refused: that may cost no more either
    }
  });
  EXPECT_GT(bytes, header.size() / 2) << "nothing was measured";
  EXPECT_LT(bytes, kMaxTimesTheHeader * header.size()) << what << ": " << bytes / header.size() << " times the header";
}

TEST(HeaderCost, ManyTensorsTakeASmallMultipleOfTheHeader) {
  expect_small_cost(tensors_of(kHeaderBytes), "tensors");
}

TEST(HeaderCost, ManyValuesTakeASmallMultipleOfTheHeader) {
  expect_small_cost(metadata_of(kHeaderBytes, 0), "empty strings");
  expect_small_cost(metadata_of(kHeaderBytes, 20), "short strings");
  expect_small_cost(metadata_of(kHeaderBytes, 1'000'000), "long strings");
}

TEST(HeaderCost, ListsAndNamesThatAreNotTensorsAreRefusedForLittle) {
  std::string numbers = R"({"t":{"dtype":"U8","shape":[0)";
  while (numbers.size() < kHeaderBytes) numbers += ",0";
  expect_small_cost(numbers + R"(],"data_offsets":[0,0]}})", "a shape of many sizes");
  expect_small_cost("{\"" + std::string(kHeaderBytes, 'x') + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                    "a long name");
}

TEST(HeaderCost, AHundredThousandTensorsWithOptimizerStateAreNoTrouble) {
  std::string header = R"({"__metadata__":{"format":"pt")";
  std::string entries;
  for (int i = 0; i < 400'000; ++i) {
    const std::string name = "optimizers.0." + std::to_string(i) + ".exp_avg";
    header += ",\"xxh3:" + name + "\":\"0123456789abcdef\"";
    entries += ",\"" + name + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  const TemporaryFolder folder;
  write_file_durably(folder / "a", with_length(header + "}" + entries + "}"));
  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.entries().size(), 400'000U);
  EXPECT_EQ(file.metadata().size(), 400'001U);
}

}  // namespace
}  // namespace levin::header_cost_test
