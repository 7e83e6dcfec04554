// Tensors in files are bitwise identical to tensors in memory, on a real disk.
#include "levin/strategies/process/spilled_memory.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <torch/torch.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "levin/core/process/stop_signal.h"
#include "support/captured_console.h"
#include "support/io_faults.h"
#include "support/temporary_folder.h"

namespace levin::spilled_memory_test {
namespace {

using levin::test::CapturedConsole;
using levin::test::IoFault;
using levin::test::IoFaults;
using levin::test::IoOutcome;
using levin::test::TemporaryFolder;

constexpr int64_t kMiB = 1 << 20;

// Of this process, in bytes: "RssAnon" without the files that it has mapped, "RssFile" they alone.
int64_t resident(const std::string& kind) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == kind + ":" && status >> kib) return kib * 1024;
  }
  ADD_FAILURE() << "no " << kind;
  return 0;
}

// How many files of the folder this process has mapped.
int mappings(const std::string& folder) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(folder + "/") != std::string::npos ? 1 : 0;
  return count;
}

// How many files of the folder this process has open.
int descriptors(const std::string& folder) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code code;  // the iterator's own descriptor may be closed by now
    count += std::filesystem::read_symlink(entry.path(), code).string().starts_with(folder + "/") ? 1 : 0;
  }
  return count;
}

// A megabyte.
at::Tensor numbers(int64_t first = 0) {
  return torch::arange(first, first + kMiB / 4, torch::kFloat);
}

// What a model's making consists of: random numbers, decompositions, views, other types, weights of two names.
std::vector<at::Tensor> made_tensors() {
  torch::manual_seed(7);
  const torch::NoGradGuard no_grad;
  torch::nn::Linear first(300, 400);
  torch::nn::LSTM recurrent(200, 200);
  torch::nn::Embedding tied(1000, 300);
  torch::nn::init::orthogonal_(first->weight);
  torch::nn::init::kaiming_normal_(recurrent->named_parameters()["weight_hh_l0"]);
  tied->weight.slice(0, 0, 500).normal_().mul_(0.02);
  tied->to(torch::kDouble);
  std::vector<at::Tensor> all = first->parameters();
  for (const auto& tensor : recurrent->parameters()) all.push_back(tensor);
  all.push_back(tied->weight);
  all.push_back(torch::cat({first->weight.t(), torch::randn({300, 400})}).contiguous());
  all.push_back(torch::randperm(100'000));
  all.push_back(torch::zeros({64, 64, 8, 8}).contiguous(torch::MemoryFormat::ChannelsLast).uniform_());
  all.push_back(torch::empty({0}).resize_({200, 200}).bernoulli_(0.3));
  return all;
}

void expect_same_bits(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other) {
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(one[i].nbytes(), other[i].nbytes()) << i;
    EXPECT_EQ(one[i].strides(), other[i].strides()) << i;
    EXPECT_EQ(std::memcmp(one[i].data_ptr(), other[i].data_ptr(), one[i].nbytes()), 0) << i;
  }
}

TEST(SpilledMemory, IsBitwiseIdenticalToOrdinaryMemory) {
  const auto expected = made_tensors();
  const at::Tensor next = torch::rand({4});
  const TemporaryFolder folder;
  SpilledMemory memory(folder.path());
  std::vector<at::Tensor> spilled;
  at::Tensor after;
  {
    const SpilledMemory::Scope scope(memory);
    spilled = made_tensors();
    after = torch::rand({4});
  }
  EXPECT_TRUE(SpilledMemory::holds(spilled[0]));
  expect_same_bits(expected, spilled);
  EXPECT_TRUE(torch::equal(next, after)) << "random numbers differ";
  memory.give_back();
  expect_same_bits(expected, spilled);
  memory.move_to_memory();
  expect_same_bits(expected, spilled);
}

TEST(SpilledMemory, TakesLargeTensorsOfTheScopesThreadAlone) {
  const TemporaryFolder folder;
  SpilledMemory memory(folder.path());
  at::Allocator* const before = c10::GetCPUAllocator();
  {
    const SpilledMemory::Scope scope(memory);
    const SpilledMemory::Scope inner(memory);
    EXPECT_TRUE(SpilledMemory::holds(numbers()));
    EXPECT_FALSE(SpilledMemory::holds(torch::zeros({100})));
    EXPECT_FALSE(SpilledMemory::holds(at::Tensor()));
    std::thread([] { EXPECT_FALSE(SpilledMemory::holds(numbers())); }).join();
  }
  EXPECT_FALSE(SpilledMemory::holds(numbers()));
  EXPECT_EQ(c10::GetCPUAllocator(), before);
}

TEST(SpilledMemory, IsReadAndWrittenThroughViewsAfterItWasGivenBack) {
  const TemporaryFolder folder;
  SpilledMemory memory(folder.path());
  const SpilledMemory::Scope scope(memory);
  const at::Tensor whole = numbers();
  const at::Tensor view = whole.view({512, 512}).t();
  EXPECT_TRUE(SpilledMemory::holds(view));
  memory.give_back();
  view[3][2] = -1;  // the fourth of the third row
  std::thread([&] { whole[0] = -2; }).join();
  memory.give_back();
  EXPECT_EQ(whole[2 * 512 + 3].item<float>(), -1);
  EXPECT_EQ(view[0][0].item<float>(), -2);
  EXPECT_EQ(whole[512].item<float>(), 512);
}

TEST(SpilledMemory, AFreedBlocksFileIsGone) {
  const TemporaryFolder folder;
  SpilledMemory memory(folder.path());
  const SpilledMemory::Scope scope(memory);
  at::Tensor kept = numbers();
  for (int i = 0; i < 5; ++i) (void)(kept + i).sum();
  EXPECT_EQ(memory.bytes(), kMiB);
  EXPECT_EQ(mappings(folder.path()), 1);
  EXPECT_EQ(folder.names(), std::vector<std::string>{}) << "its file has a name";
  kept = at::Tensor();
  EXPECT_EQ(memory.bytes(), 0);
  EXPECT_EQ(mappings(folder.path()), 0);
}

TEST(SpilledMemory, AModelLargerThanItsBoundDoesNotStayResident) {
  const TemporaryFolder folder;
  SpilledMemory memory(folder.path());
  const int64_t anonymous = resident("RssAnon");
  const int64_t files = resident("RssFile");
  std::vector<at::Tensor> model;
  int64_t most = 0;
  {
    const SpilledMemory::Scope scope(memory);
    for (int i = 0; i < 64; ++i) {
      model.push_back(torch::full({4 * kMiB / 4}, i, torch::kFloat));
      most = std::max(most, resident("RssFile") - files);
    }
  }
  EXPECT_EQ(memory.bytes(), 256 * kMiB);
  EXPECT_LT(resident("RssAnon") - anonymous, 8 * kMiB);
  EXPECT_LT(most, 80 * kMiB);
  memory.give_back();
  EXPECT_LT(resident("RssFile") - files, 8 * kMiB);
  for (int i = 0; i < 64; ++i) EXPECT_TRUE(torch::all(model[i] == i).item<bool>()) << i;
}

TEST(SpilledMemory, LivesAsLongAsItsTensors) {
  at::Tensor tensor;
  {
    const TemporaryFolder folder;
    SpilledMemory memory(folder.path());
    const SpilledMemory::Scope scope(memory);
    tensor = numbers(5);
  }
  EXPECT_TRUE(SpilledMemory::holds(tensor));
  EXPECT_TRUE(torch::equal(tensor, numbers(5)));
  tensor.resize_({kMiB}).zero_();  // what a tensor takes later is ordinary
  EXPECT_FALSE(SpilledMemory::holds(tensor));
  std::thread([mine = std::move(tensor)]() mutable { mine = at::Tensor(); }).join();
}

TEST(SpilledMemory, MovesToMemoryWhereItIs) {
  const TemporaryFolder folder;
  SpilledMemory memory(folder.path());
  std::vector<at::Tensor> tensors;
  {
    const SpilledMemory::Scope scope(memory);
    for (int i = 0; i < 3; ++i) tensors.push_back(numbers(i));
    tensors.push_back(torch::ones({100'001}, torch::kByte));  // no whole number of pages
  }
  EXPECT_GT(descriptors(folder.path()), 0);
  memory.give_back();
  EXPECT_EQ(descriptors(folder.path()), 0) << "only the mappings are needed from now on";
  const at::Tensor view = tensors[1].slice(0, 10, 20);
  const void* address = tensors[1].data_ptr();
  const int64_t before = resident("RssAnon");
  memory.move_to_memory();
  EXPECT_EQ(tensors[1].data_ptr(), address);
  EXPECT_EQ(memory.bytes(), 0);
  EXPECT_EQ(mappings(folder.path()), 0);
  EXPECT_GT(resident("RssAnon") - before, 2 * kMiB);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(torch::equal(tensors[i], numbers(i))) << i;
  EXPECT_EQ(tensors[3].sum().item<int64_t>(), 100'001);
  tensors[1][15] = 0.5;
  EXPECT_EQ(view[5].item<float>(), 0.5);
  for (const auto& tensor : tensors) EXPECT_FALSE(SpilledMemory::holds(tensor));
}

TEST(SpilledMemory, IsSavedAsAnyTensor) {
  const TemporaryFolder folder;
  SpilledMemory memory(folder.path());
  std::stringstream stream;
  {
    const SpilledMemory::Scope scope(memory);
    const at::Tensor tensor = numbers(3);
    memory.give_back();
    torch::save(tensor, stream);
  }
  at::Tensor loaded;
  torch::load(loaded, stream);
  EXPECT_TRUE(torch::equal(loaded, numbers(3)));
}

TEST(SpilledMemory, GivesOperatorsBarePointers) {
  const TemporaryFolder folder;
  SpilledMemory memory(folder.path());
  void* early = c10::GetCPUAllocator()->raw_allocate(kMiB);
  {
    const SpilledMemory::Scope scope(memory);
    for (const size_t bytes : {size_t{100}, size_t{kMiB}}) {
      void* data = c10::GetCPUAllocator()->raw_allocate(bytes);
      std::memset(data, 1, bytes);
      c10::GetCPUAllocator()->raw_deallocate(data);
    }
    c10::GetCPUAllocator()->raw_deallocate(early);
  }
  EXPECT_EQ(memory.bytes(), 0);
}

class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(SpilledMemory, WithoutRoomItTakesOrdinaryMemoryAndReportsItOnce) {
  const TemporaryFolder folder;
  const WriteErrorsScope no_signals;
  const CapturedConsole console;
  SpilledMemory memory(folder.path());
  std::vector<at::Tensor> tensors;
  {
    const FileSizeLimit limit(2 * kMiB);
    const SpilledMemory::Scope scope(memory);
    tensors = {numbers(1), torch::ones({kMiB}), torch::ones({kMiB}), numbers(2)};
  }
  EXPECT_TRUE(SpilledMemory::holds(tensors[0]));
  for (int i = 1; i < 4; ++i) EXPECT_FALSE(SpilledMemory::holds(tensors[i])) << i;
  EXPECT_EQ(tensors[1].sum().item<float>(), kMiB);
  EXPECT_TRUE(torch::equal(tensors[3], numbers(2)));
  ASSERT_EQ(console.lines().size(), 1U) << console.text();
  EXPECT_TRUE(
      console.has("cannot reserve 4.0 MiB in " + folder.path() + " for the model while it is made: File too large."))
      << console.text();
  EXPECT_TRUE(console.has("Name a folder on a local disk in FSDPOptions.spill_dir, or set spill_dir: \"off\"."));
}

TEST(SpilledMemory, ADiskThatIsFullFailsWhereMemoryIsTakenAndNotWhereItIsUsed) {
  const TemporaryFolder folder;
  const IoFaults faults(folder.path());
  const auto make = [&] {
    at::set_num_threads(1);  // the fork has no others
    const CapturedConsole console;
    SpilledMemory memory(folder.path());
    std::vector<at::Tensor> tensors;
    {
      const SpilledMemory::Scope scope(memory);
      for (int i = 0; i < 3; ++i) tensors.push_back(numbers(i));
    }
    memory.give_back();
    for (int i = 0; i < 3; ++i) {
      if (!torch::equal(tensors[i], numbers(i))) throw std::runtime_error("other numbers");
    }
    if (console.lines().size() > 1) throw std::runtime_error(console.text());
  };
  const IoOutcome whole = faults.run({}, make);
  ASSERT_EQ(whole.end, IoOutcome::End::done) << whole.error;
  ASSERT_GE(whole.calls.size(), 6U);
  for (const IoFault fault : {IoFault::no_space, IoFault::io_error, IoFault::interrupted, IoFault::kill}) {
    for (int call = 1;; ++call) {
      const IoOutcome outcome = faults.run({.call = call, .fault = fault}, make);
      if (!outcome.injected) break;
      const auto expected = fault == IoFault::kill ? IoOutcome::End::killed : IoOutcome::End::done;
      EXPECT_EQ(outcome.end, expected) << outcome.calls.back().name << ": " << outcome.error;
      EXPECT_EQ(folder.names(), std::vector<std::string>{}) << outcome.calls.back().name;
    }
  }
}

TEST(SpilledMemory, AFolderThatIsNotThereIsNamed) {
  const CapturedConsole console;
  SpilledMemory memory("/no/such/folder");
  const SpilledMemory::Scope scope(memory);
  EXPECT_TRUE(torch::equal(numbers(), torch::arange(kMiB / 4, torch::kFloat)));
  EXPECT_TRUE(console.has("in /no/such/folder for the model while it is made: No such file or directory"))
      << console.text();
}

TEST(SpilledMemory, AFolderInMemoryIsNotUsed) {
  struct statfs info {};
  if (::statfs("/dev/shm", &info) != 0 || info.f_type != 0x01021994) GTEST_SKIP() << "/dev/shm is not a tmpfs here";
  const CapturedConsole console;
  SpilledMemory memory("/dev/shm");
  const SpilledMemory::Scope scope(memory);
  EXPECT_FALSE(SpilledMemory::holds(numbers()));
  EXPECT_TRUE(console.has("the folder /dev/shm is a file system in memory")) << console.text();
  EXPECT_EQ(console.lines().size(), 1U);
}

TEST(SpilledMemory, AutoTakesTheFolderThatTheEnvironmentNames) {
  const TemporaryFolder folder;
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("TMPDIR", folder.path().c_str(), 1);
  SpilledMemory memory("auto");
  before == nullptr ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", kept.c_str(), 1);
  const SpilledMemory::Scope scope(memory);
  const at::Tensor tensor = numbers();
  EXPECT_EQ(mappings(folder.path()), 1);
}

}  // namespace
}  // namespace levin::spilled_memory_test
