// Fuzzes shards: the first byte of an input chooses the format, and "%%%%\n" separates the index from the shard. For
// any bytes, a reader returns samples or throws DataError that names the file, in memory in proportion to the file.
#include <ATen/Parallel.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <filesystem>

#include "fuzz_support.h"
#include "guarded_memory.h"
#include "levin/core/options/error.h"
#include "levin/data/streams/stream_index.h"
#include "support/temporary_folder.h"

namespace levin::fuzz {
namespace {

constexpr size_t kMaxBytes = 64 << 20;
constexpr uint64_t kMaxShardBytes = 1 << 20;
constexpr int64_t kMaxSamples = 50;  // that are read of an input

const ScratchFile& file() {
  static const ScratchFile scratch;
  return scratch;
}

const test::TemporaryFolder& folder() {
  static const test::TemporaryFolder temporary;
  return temporary;
}

void read_samples(const StreamIndex& index, const std::string& path) {
  const auto shard = open_shard(index, 0, path);
  expect(shard->size() <= static_cast<int64_t>(kMaxShardBytes), "a sample takes a byte at least");
  for (int64_t i = 0; i < std::min(shard->size(), kMaxSamples); ++i) {
    const Batch sample = shard->get(i);
    expect(!shard->sample_id(i).empty(), "a sample has an id");
    for (const at::Tensor& tensor : sample.tensors) {
      if (tensor.numel() > 0 && !tensor.is_complex() && tensor.nbytes() < kMaxShardBytes) {
        (void)tensor.contiguous().view({-1})[tensor.numel() - 1].item();
      }
    }
  }
}

// Reads the shard, decompressed first where the index says that it is compressed.
void read_shard(const StreamIndex& index) {
  const ShardInfo& info = index.shards.at(0);
  if (info.compression.empty()) return read_samples(index, file().path());
  const std::string path = folder() / "shard";
  decompress_shard(info, file().path(), path, kMaxShardBytes);
  expect(std::filesystem::file_size(path) <= std::max(kMaxShardBytes, info.decompressed_bytes), "a limit holds");
  try {
    read_samples(index, path);
  } catch (const DataError& error) {
    expect(std::string(error.what()).find(path) != std::string::npos, "an error names the file", error.what());
  }
}

void read_indexed(std::string_view input) {
  StreamOptions options{.block_size = 3, .image = {.max_pixels = 1 << 16}};
  const std::vector<std::string> sections = sections_of(input, 2);
  StreamIndex index = parse_stream_index(file().path(), sections[0], options);
  for (ShardInfo& shard : index.shards) {
    shard.decompressed_bytes = std::min(shard.decompressed_bytes, kMaxShardBytes);
    shard.checksums.clear();
  }
  file().write(sections.size() > 1 ? sections[1] : "");
  read_shard(index);
}

void read_kind(char kind, std::string_view bytes) {
  const auto read = [&](const std::string& name) {
    file().write(bytes);
    read_shard(index_of_files(file().path(), {{.key = name}}, {.image = {.max_pixels = 1 << 16}}));
  };
  switch (kind) {
    case 'i': return read_indexed(bytes);
    case 't': return read("a.tar");
    case 'g': return read("a.tar.gz");
    case 'j': return read("a.jsonl");
    case 'z': return read("a.jsonl.zst");
    case 'p': return expect(expand_braces(std::string(bytes.substr(0, 100))).size() <= 1'000'000, "a limit holds");
    default: return;
  }
}

}  // namespace

void run_one(std::string_view input) {
  ++Counts::instance().inputs;
  if (input.empty()) return;
  GuardedMemory::install().set_budget(kMaxBytes);
  at::set_num_threads(1);
  try {
    read_kind(input[0], input.substr(1));
    ++Counts::instance().whole;
  } catch (const DataError& error) {
    const std::string message = error.what();
    expect(message.find(file().path()) != std::string::npos || message.starts_with("pattern "),
           "an error names the file", message);
    expect(message.size() < 3000, "a message is not endless", message);
    check_planted(message, "found");
  }
}

void begin() {
  Counts::print_at_exit();
}

}  // namespace levin::fuzz
