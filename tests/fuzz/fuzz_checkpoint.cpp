// libFuzzer target: an input is a checkpoint file. For any bytes, the reader returns a State no larger than the file or
// throws CheckpointError.
//
// The header's checksum would catch a changed byte, and no code after that check would ever run. So the mutator below
// repairs the checksums of most inputs (forge.h); the summary at the end counts the inputs that got past them.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>

#include "forge.h"
#include "fuzz_support.h"
#include "levin/callbacks/checkpoint_folder.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/checkpoint/sharded_record.h"
#include "levin/checkpoint/values_json.h"
#include "levin/core/files/files.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace levin::fuzz {
namespace {

namespace fs = std::filesystem;

struct Counts {
  uint64_t inputs = 0, trusted = 0, whole = 0, used = 0;
};
Counts counts;

// ck: a checkpoint folder with a link that leads out of it. outside: files that must never change, regardless of the
// paths in a checkpoint. In those paths "/ck" stands for the folder, so that an input does not depend on where the
// fuzzer runs.
class WatchedFolders {
 public:
  WatchedFolders() {
    std::string pattern = (fs::temp_directory_path() / "levin-fuzz-XXXXXX").string();
    expect(::mkdtemp(pattern.data()) != nullptr, "a scratch folder can be made");
    root_ = pattern;
    fs::create_directories(root_ + "/ck/sub");
    fs::create_directories(root_ + "/outside");
    fs::create_directory_symlink("../outside", root_ + "/ck/out");
    std::ofstream(root_ + "/outside/victim.ckpt") << "theirs";
  }
  ~WatchedFolders() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  WatchedFolders(const WatchedFolders&) = delete;
  WatchedFolders& operator=(const WatchedFolders&) = delete;

  // Does what ModelCheckpoint does with a path in a checkpoint: writes there and removes it.
  void use(const std::string& stored_path) const {
    const std::string ck = root_ + "/ck";
    const std::string name = name_within(root_ + stored_path, ck);
    const std::string path = ck + "/" + name;
    if (name.empty() || !is_inside(path, ck)) return;
    ++counts.used;
    std::error_code code;
    fs::create_directories(fs::path(path).parent_path(), code);
    std::ofstream(path) << "new";
    (void)remove_checkpoint(path);
    fs::remove_all(ck + "/sub", code);
    expect(is_untouched(), "nothing outside the checkpoint folder is touched", stored_path);
  }

 private:
  [[nodiscard]] bool is_untouched() const {
    std::string content;
    std::ifstream(root_ + "/outside/victim.ckpt") >> content;
    const auto files = std::distance(fs::directory_iterator(root_ + "/outside"), fs::directory_iterator());
    const auto folders = std::distance(fs::directory_iterator(root_), fs::directory_iterator());
    return content == "theirs" && files == 1 && folders == 2;
  }

  std::string root_;
};

void use_as_paths(const ConfigNode& node, const WatchedFolders& folders) {
  if (node.is_scalar() && node.text.starts_with("/ck")) folders.use(node.text);
  for (const auto& item : node.items) use_as_paths(item, folders);
  for (const auto& entry : node.entries) {
    if (entry.key.starts_with("/ck")) folders.use(entry.key);
    use_as_paths(entry.value, folders);
  }
}

void check_record(const std::string& path) {
  for (const ShardFile& shard : read_sharded_record(path).shards) {
    expect(fs::path(shard.file).filename() == shard.file, "a shard is a file in the same folder", shard.file);
  }
}

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
    static const WatchedFolders folders;
    use_as_paths(state.values, folders);
  } catch (const CheckpointError& error) {
    check_error(error.what(), file.path());
  }
  try {
    check_record(file.path());
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

void begin() {
  std::atexit([] {
    std::fprintf(stderr, "levin: %lu inputs, %lu past the header's checksum, %lu read whole, %lu paths used\n",
                 counts.inputs, counts.trusted, counts.whole, counts.used);
  });
}

}  // namespace levin::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  const std::string file = levin::fuzz::mutated({reinterpret_cast<const char*>(data), size}, max_size, seed);
  if (file.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, file.data(), file.size());
  return file.size();
}
