// Sharded checkpoints with a forged record whose checksums are correct: its files and positions in tensors are checked
// before they are used, and every error names the file.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/core/files/files.h"
#include "support/temporary_folder.h"

namespace levin::forged_shards_test {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using Numbers = std::vector<int64_t>;

ConfigNode numbers(const Numbers& values) {
  return ValueType<Numbers>::write(values);
}

// A weight (2, 3) on two ranks: 0 to 3, 4 and 5.
void save(const std::string& folder) {
  const auto write = [&](int64_t rank, int64_t begin, int64_t end) {
    State state;
    ConfigNode part = ConfigNode::map();
    part.set("begin", ValueType<int64_t>::write(begin));
    part.set("shape", numbers({2, 3}));
    ConfigNode parts = ConfigNode::map();
    parts.set("model.weight", part);
    state.values.set("parts", parts);
    state.tensors["model.weight"] = torch::arange(begin, end, torch::kFloat);
    write_sharded_checkpoint(folder, state, {rank, 2, "a"});
  };
  std::thread other([&] { write(1, 4, 6); });
  write(0, 0, 4);
  other.join();
}

struct Forged {
  State sharded;
  ConfigNode layout, shards;

  void set_layout(const Numbers& shape, const Numbers& begins) {
    ConfigNode of_key = ConfigNode::map();
    of_key.set("shape", numbers(shape));
    of_key.set("begins", numbers(begins));
    layout.set("model.weight", of_key);
  }
};

// Writes the record anew with its checksums right, and gives the error of reading the folder.
std::string error_with(const std::function<void(Forged&)>& change) {
  const TemporaryFolder out;
  const std::string folder = out / "run.ckpt";
  save(folder);
  write_file_durably(out / "outside.safetensors", read_file(folder + "/shard-0-of-2.a.safetensors"));
  State record = read_checkpoint(sharded_record(folder));
  Forged forged{record.part("sharded"), {}, {}};
  forged.layout = forged.sharded.get<ConfigNode>("layout");
  forged.shards = forged.sharded.get<ConfigNode>("shards");
  change(forged);
  forged.sharded.values.set("layout", forged.layout);
  forged.sharded.values.set("shards", forged.shards);
  record.values.set("sharded", forged.sharded.values);
  write_checkpoint(sharded_record(folder), record);
  try {
    (void)load_checkpoint(folder);
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find(folder), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in: " << text;
}

TEST(ForgedShards, PartsThatOverlapOrLeaveAGapAreAnError) {
  for (const Numbers& begins : {Numbers{0, 2}, Numbers{0, 3}, Numbers{1, 4}}) {
    const std::string error = error_with([&](Forged& forged) { forged.set_layout({2, 3}, begins); });
    expect_has(error, "commit.safetensors: the parts of \"model.weight\" ");
  }
  expect_has(error_with([](Forged& forged) { forged.set_layout({2, 3}, {0, 2}); }), "overlap at number 2");
  expect_has(error_with([](Forged& forged) {
               forged.set_layout({2, 4}, {0, 4});
             }),
             "the shards hold 6 of the 8 numbers");
  expect_has(error_with([](Forged& forged) { forged.set_layout({2, 4}, {0, 6}); }), "leave a gap at number 4");
  EXPECT_EQ(error_with([](Forged& forged) {
              forged.set_layout({3, 2}, {0, 4});
            }),
            "")
      << "a different shape is not damage";
}

TEST(ForgedShards, PartsOutOfRangeAreAnError) {
  for (const Numbers& begins : {Numbers{0, 5}, Numbers{0, -1}, Numbers{0, -2}, Numbers{0, INT64_MAX},
                                Numbers{INT64_MIN, 4}, Numbers{0}, Numbers{}, Numbers{0, 4, 6}}) {
    const std::string error = error_with([&](Forged& forged) { forged.set_layout({2, 3}, begins); });
    expect_has(error, "commit.safetensors: ");
    expect_has(error, "\"model.weight\"");
  }
}

TEST(ForgedShards, AShapeWhoseStridesOverflowIsAnError) {
  const int64_t large = int64_t{1} << 40;
  expect_has(error_with([&](Forged& forged) { forged.set_layout({0, large, large}, {0, 4}); }), "the layout of");
}

TEST(ForgedShards, AShapeOfMoreDimensionsThanLibTorchHasIsAnError) {
  const auto error_of = [](size_t dims) {
    Numbers shape(dims, 1);
    shape.back() = 6;
    return error_with([&](Forged& forged) { forged.set_layout(shape, {0, 4}); });
  };
  EXPECT_EQ(error_of(64), "");
  expect_has(error_of(65), "the layout of \"model.weight\" is wrong: 65 dimensions are more than LibTorch has");
}

TEST(ForgedShards, AShardsNameIsAPlainFileName) {
  for (const std::string name :
       {"../outside.safetensors", "./shard-0-of-2.a.safetensors", "/etc/passwd", "", ".", "..", "commit.safetensors",
        "shard-0-of-2.a.safetensors/", "shard-../../outside.safetensors", "shard-\n"}) {
    const std::string error =
        error_with([&](Forged& forged) { forged.shards.items[0].set("file", ConfigNode::scalar(name, true)); });
    expect_has(error, "commit.safetensors: ");
    expect_has(error, "is not the name of a shard");
  }
}

TEST(ForgedShards, AShardThatIsNamedTwiceIsAnError) {
  expect_has(error_with([](Forged& forged) { forged.shards.items[1] = forged.shards.items[0]; }), "named twice");
}

TEST(ForgedShards, ARecordWithoutWhatItNeedsIsNamed) {
  for (const char* key : {"layout", "shards"}) {
    const TemporaryFolder out;
    save(out / "run.ckpt");
    State record = read_checkpoint(sharded_record(out / "run.ckpt"));
    ConfigNode sharded = *record.values.find("sharded");
    std::erase_if(sharded.entries, [&](const auto& entry) { return entry.key == key; });
    record.values.set("sharded", sharded);
    write_checkpoint(sharded_record(out / "run.ckpt"), record);
    try {
      (void)load_checkpoint(out / "run.ckpt");
      ADD_FAILURE() << "was read without " << key;
    } catch (const CheckpointError& error) {
      expect_has(error.what(), out / "run.ckpt/commit.safetensors: saved state has no \"" + key);
    }
  }
}

TEST(ForgedShards, AFolderOrALoopWhereAShardShouldBeIsAnError) {
  for (const bool loop : {false, true}) {
    const TemporaryFolder out;
    save(out / "run.ckpt");
    const std::string shard = out / "run.ckpt/shard-1-of-2.a.safetensors";
    fs::remove(shard);
    if (loop) fs::create_symlink("shard-1-of-2.a.safetensors", shard);
    if (!loop) fs::create_directory(shard);
    try {
      (void)load_checkpoint(out / "run.ckpt");
      ADD_FAILURE() << "was read";
    } catch (const CheckpointError& error) {
      expect_has(error.what(), "shard-1-of-2.a.safetensors");
    }
  }
}

// A link where the folder should be leads to another checkpoint, whose files are not this one's to replace.
TEST(ForgedShards, ASaveReplacesALinkAndNotWhatItLeadsTo) {
  const TemporaryFolder out;
  save(out / "best.ckpt");
  const std::string record = read_file(sharded_record(out / "best.ckpt"));
  fs::create_directory_symlink("best.ckpt", out / "last.ckpt");
  save(out / "last.ckpt");
  EXPECT_EQ(read_file(sharded_record(out / "best.ckpt")), record);
  EXPECT_FALSE(fs::is_symlink(out / "last.ckpt"));
  EXPECT_EQ(load_checkpoint(out / "last.ckpt").tensor("model.weight").sum().item<float>(), 15);
}

}  // namespace
}  // namespace levin::forged_shards_test
