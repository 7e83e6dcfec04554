// Damage to a checkpoint as a Trainer writes it: every flipped bit, removed and appended byte is detected and reported
// with the file's name. (checkpoint_file_test.cpp flips every bit of a tiny file.)
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>

#include "callbacks/quiet_trainer.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/files/files.h"
#include "levin/optim/adam.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::checkpoint_damage_test {
namespace {

using test::TemporaryFolder;

// "" if nothing was found wrong; anything but CheckpointError ends the test.
template <class Read>
std::string complaint_of(const Read& read) {
  try {
    read();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

std::string error_of_reading(const std::string& path) {
  return complaint_of([&] { (void)read_checkpoint(path); });
}

// Three steps with Adam: parameters, moments, generator, progress, the loop's and the callbacks' values.
std::string save_real_checkpoint(const TemporaryFolder& folder) {
  test::TinyModule module;
  module.make_optimizers = [](test::TinyModule& m) -> OptimizerConfig { return Adam(m.parameters(), {.lr = 0.01}); };
  Trainer trainer(test::quiet(/*max_epochs=*/1, {}, folder.path()));
  trainer.fit(module, test::tiny_loader(12));
  const std::string path = folder / "real.ckpt";
  trainer.save_checkpoint(path);
  return path;
}

// A file whose bits can be flipped in place.
class Bits {
 public:
  explicit Bits(const std::string& path) : fd_(::open(path.c_str(), O_RDWR)), good_(read_file(path)) {}
  ~Bits() { ::close(fd_); }
  Bits(const Bits&) = delete;
  Bits& operator=(const Bits&) = delete;

  [[nodiscard]] const std::string& good() const { return good_; }
  [[nodiscard]] size_t data_start() const {
    uint64_t length = 0;
    std::memcpy(&length, good_.data(), 8);
    return 8 + length;
  }
  void flip(size_t bit) { put(bit / 8, static_cast<char>(good_[bit / 8] ^ (1 << (bit % 8)))); }
  void restore(size_t bit) { put(bit / 8, good_[bit / 8]); }

 private:
  void put(size_t at, char byte) { ASSERT_EQ(::pwrite(fd_, &byte, 1, static_cast<off_t>(at)), 1); }

  int fd_;
  std::string good_;
};

// Which bits to flip: all of the length, the mark and the checksum's digits, of the header's last bytes (padding) and
// of the data's first and last; a stride and a seeded sample over all the rest.
std::set<size_t> chosen_bits(const Bits& file, size_t stride, size_t sample) {
  const size_t size = file.good().size(), data = file.data_start();
  std::set<size_t> bits;
  const auto add_bytes = [&](size_t begin, size_t end) {
    for (size_t bit = begin * 8; bit < std::min(end, size) * 8; ++bit) bits.insert(bit);
  };
  add_bytes(0, 80);
  add_bytes(data - 16, data + 16);
  add_bytes(size - 16, size);
  for (size_t bit = 0; bit < size * 8; bit += stride) bits.insert(bit);
  std::mt19937_64 random(20);
  std::uniform_int_distribution<size_t> any(0, size * 8 - 1);
  while (bits.size() < sample) bits.insert(any(random));
  return bits;
}

TEST(CheckpointDamage, EveryFlippedBitOfARealCheckpointIsNoticed) {
  const TemporaryFolder folder;
  const std::string path = save_real_checkpoint(folder);
  ASSERT_EQ(error_of_reading(path), "");
  Bits file(path);
  ASSERT_GT(file.good().size(), 5000U) << "the generator's state alone is larger";
  const std::set<size_t> bits = chosen_bits(file, 37, 8000);
  ASSERT_GE(bits.size(), 8000U);
  for (const size_t bit : bits) {
    file.flip(bit);
    const std::string error = error_of_reading(path);
    ASSERT_NE(error.find(path), std::string::npos) << "bit " << bit << " was not noticed: " << error;
    // Reading the header alone finds damage to the header; it does not read the tensors' data.
    const bool in_header = bit / 8 < file.data_start();
    ASSERT_EQ(complaint_of([&] { (void)read_checkpoint_values(path); }).empty(), !in_header) << "bit " << bit;
    file.restore(bit);
  }
  EXPECT_EQ(error_of_reading(path), "");
}

TEST(CheckpointDamage, FlippedBitsOfALargeTensorAreNoticed) {
  const TemporaryFolder folder;
  State state;
  state.tensors["large"] = torch::arange(3 << 20, at::kInt);  // 12 MiB
  write_checkpoint(folder / "a.ckpt", state);
  Bits file(folder / "a.ckpt");
  const size_t data = file.data_start() * 8;
  for (const size_t at : {size_t{0}, size_t{1} << 16, size_t{1} << 20, size_t{5'000'003}, (size_t{12} << 20) - 1}) {
    for (const size_t bit : {data + at * 8, data + at * 8 + 7}) {
      file.flip(bit);
      const std::string error = error_of_reading(folder / "a.ckpt");
      EXPECT_NE(error.find("\"large\""), std::string::npos) << "bit " << bit << ": " << error;
      file.restore(bit);
    }
  }
  EXPECT_EQ(error_of_reading(folder / "a.ckpt"), "");
}

TEST(CheckpointDamage, EveryCutAndEveryAppendedByteIsNoticed) {
  const TemporaryFolder folder;
  const std::string path = save_real_checkpoint(folder);
  const std::string good = read_file(path);
  for (size_t size = good.size() - 1; size != SIZE_MAX; --size) {
    ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(size)), 0);
    const std::string error = error_of_reading(path);
    ASSERT_NE(error.find(path), std::string::npos) << size << " bytes: " << error;
  }
  for (const std::string& tail : {std::string(1, '\0'), std::string(" "), std::string(8, '\0'), good}) {
    write_file_durably(path, good + tail);
    EXPECT_NE(error_of_reading(path).find("added to"), std::string::npos) << tail.size() << " bytes more";
  }
  write_file_durably(path, good);
  EXPECT_EQ(error_of_reading(path), "");
}

TEST(CheckpointDamage, AZeroedBlockAndSwappedBlocksAreNoticed) {
  const TemporaryFolder folder;
  const std::string path = save_real_checkpoint(folder);
  const std::string good = read_file(path);
  constexpr size_t kBlock = 512;  // what a disk loses at once
  for (size_t at = 0; at + 2 * kBlock <= good.size(); at += kBlock) {
    std::string zeroed = good;
    zeroed.replace(at, kBlock, kBlock, '\0');
    std::string swapped = good;
    std::swap_ranges(swapped.begin() + static_cast<ptrdiff_t>(at),
                     swapped.begin() + static_cast<ptrdiff_t>(at + kBlock),
                     swapped.begin() + static_cast<ptrdiff_t>(at + kBlock));
    for (const std::string& bad : {zeroed, swapped}) {
      if (bad == good) continue;
      write_file_durably(path, bad);
      EXPECT_NE(error_of_reading(path).find(path), std::string::npos) << "block at byte " << at;
    }
  }
}

TEST(CheckpointDamage, WhatATerminalWouldObeyIsEscapedInMessages) {
  const TemporaryFolder folder;
  State state;
  state.tensors["\x1b[2Jline\n" + std::string(5000, 'x')] = torch::ones({2});
  write_checkpoint(folder / "a.ckpt", state);
  Bits file(folder / "a.ckpt");
  file.flip(file.data_start() * 8);
  const std::string error = error_of_reading(folder / "a.ckpt");
  EXPECT_NE(error.find("\\x1b[2Jline"), std::string::npos) << error;
  EXPECT_TRUE(std::none_of(error.begin(), error.end(), [](char c) { return c >= 0 && c < ' '; })) << error;
  EXPECT_LT(error.size(), 2000U);
}

TEST(CheckpointDamage, APipeInThePlaceOfAFileIsRefusedAtOnce) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_NE(error_of_reading(folder / "pipe").find("cannot be read"), std::string::npos);
}

}  // namespace
}  // namespace levin::checkpoint_damage_test
