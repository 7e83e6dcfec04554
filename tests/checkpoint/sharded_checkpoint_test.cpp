// Folders that several ranks write to: what the commit record promises, and the errors where it does not hold.
#include "levin/checkpoint/sharded_checkpoint.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_reader.h"
#include "levin/core/files/files.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "support/wait_until.h"

namespace levin::sharded_checkpoint_test {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::TemporaryFolder;
using test::wait_until;

// Of a weight (2, 3), which holds 0 to 5: `begin` to `end`. Rank 0 writes what is the same everywhere.
State rank_state(int64_t rank, int64_t begin, int64_t end) {
  State state;
  if (rank == 0) {
    state.set<int64_t>("epoch", 3);
    state.tensors["model.buffer"] = torch::full({2}, 7.0);
  }
  ConfigNode parts = ConfigNode::map();
  if (end > begin) {
    ConfigNode part = ConfigNode::map();
    part.set("begin", ValueType<int64_t>::write(begin));
    part.set("shape", ValueType<std::vector<int64_t>>::write({2, 3}));
    parts.set("model.weight", part);
    state.tensors["model.weight"] = torch::arange(begin, end, torch::kFloat);
  }
  state.values.set("parts", parts);
  return state;
}

// All ranks' shards, as threads: rank 0 waits for the others, so a folder must not hold the shards of a save of this
// name.
void save(const std::string& folder, const std::string& name, const std::vector<int64_t>& borders = {0, 4, 6}) {
  const auto ranks = static_cast<int64_t>(borders.size()) - 1;
  std::vector<std::thread> others;
  for (int64_t rank = 1; rank < ranks; ++rank) {
    others.emplace_back([&, rank] {
      const auto r = static_cast<size_t>(rank);
      write_sharded_checkpoint(folder, rank_state(rank, borders[r], borders[r + 1]), {rank, ranks, name});
    });
  }
  write_sharded_checkpoint(folder, rank_state(0, borders[0], borders[1]), {0, ranks, name});
  for (auto& other : others) other.join();
}

std::string error_of_reading(const std::string& folder) {
  return error_of<CheckpointError>([&] { (void)read_sharded_checkpoint(folder); });
}

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(ShardedCheckpoint, IsPutTogetherFromAnyNumberOfParts) {
  const TemporaryFolder out;
  int saves = 0;
  for (const auto& borders : std::vector<std::vector<int64_t>>{{0, 6}, {0, 4, 6}, {0, 2, 4, 6}, {0, 0, 6, 6}}) {
    const std::string folder = (out / "run.ckpt");
    save(folder, "save" + std::to_string(saves++), borders);
    const State whole = load_checkpoint(folder);
    EXPECT_TRUE(torch::equal(whole.tensor("model.weight"), torch::arange(6, torch::kFloat).view({2, 3})));
    EXPECT_TRUE(torch::equal(whole.tensor("model.buffer"), torch::full({2}, 7.0)));
    EXPECT_EQ(whole.get<int64_t>("epoch"), 3);
    EXPECT_FALSE(whole.has("sharded"));
    EXPECT_FALSE(whole.has("parts"));
    const ShardedReader reader(folder);
    for (const char* name : {"model.weight", "model.buffer"}) {
      EXPECT_TRUE(torch::equal(reader.read(name), whole.tensor(name))) << name;
      EXPECT_EQ(reader.tensors().at(name).shape, whole.tensor(name).sizes().vec()) << name;
    }
  }
}

TEST(ShardedCheckpoint, ASaveOverAnOlderOneLeavesItsOwnFilesOnly) {
  const TemporaryFolder out;
  const std::string folder = (out / "last.ckpt");
  save(folder, "one");
  save(folder, "two", {0, 2, 4, 6});
  EXPECT_EQ(files_of(folder),
            (std::vector<std::string>{"commit.safetensors", "shard-0-of-3.two.safetensors",
                                      "shard-1-of-3.two.safetensors", "shard-2-of-3.two.safetensors"}));
}

TEST(ShardedCheckpoint, WithoutTheRecordThereIsNone) {
  const TemporaryFolder out;
  const std::string folder = (out / "run.ckpt");
  write_sharded_checkpoint(folder, rank_state(1, 4, 6), {1, 2, "a"});
  EXPECT_FALSE(is_sharded_checkpoint(folder));
  EXPECT_NE(error_of_reading(folder).find("its save was never finished"), std::string::npos);
}

TEST(ShardedCheckpoint, ASaveThatEndsBeforeTheRecordLeavesTheOlderOne) {
  const TemporaryFolder out;
  const std::string folder = (out / "last.ckpt");
  save(folder, "one");
  write_sharded_checkpoint(folder, rank_state(1, 4, 6), {1, 2, "two"});  // rank 0 was killed before its shard
  EXPECT_EQ(load_checkpoint(folder).tensor("model.weight").sum().item<float>(), 15);
}

TEST(ShardedCheckpoint, ARankThatNeverWritesIsNamedAndTheOlderOneStays) {
  const TemporaryFolder out;
  const std::string folder = (out / "last.ckpt");
  save(folder, "one");
  const std::string error = error_of<CheckpointError>([&] {
    write_sharded_checkpoint(folder, rank_state(0, 0, 4), {0, 2, "two"}, std::chrono::milliseconds(100));
  });
  EXPECT_NE(error.find("shard-1-of-2.two.safetensors of rank 1 was not there within"), std::string::npos) << error;
  EXPECT_EQ(load_checkpoint(folder).tensor("model.weight").sum().item<float>(), 15);
  EXPECT_EQ(files_of(folder).size(), 3U);
}

TEST(ShardedCheckpoint, ARankThatCannotWriteTellsRankZero) {
  const TemporaryFolder out;
  const std::string folder = (out / "run.ckpt");
  fs::create_directories(fs::path(folder) / "shard-1-of-2.a.safetensors");  // a folder is where the shard should be
  EXPECT_NE(error_of<CheckpointError>([&] { write_sharded_checkpoint(folder, rank_state(1, 4, 6), {1, 2, "a"}); }), "");
  fs::remove(fs::path(folder) / "shard-1-of-2.a.safetensors");
  const std::string error = error_of<CheckpointError>([&] {
    write_sharded_checkpoint(folder, rank_state(0, 0, 4), {0, 2, "a"});
  });
  EXPECT_NE(error.find("rank 1 could not write its shard: saving checkpoint"), std::string::npos) << error;
  EXPECT_FALSE(is_sharded_checkpoint(folder));
}

TEST(ShardedCheckpoint, ReplacesAFileAndIsReplacedByOne) {
  const TemporaryFolder out;
  const std::string path = out / "last.ckpt";
  State single;
  single.set<int64_t>("epoch", 1);
  write_single_checkpoint(path, single);
  save(path, "a");
  EXPECT_EQ(load_checkpoint(path).get<int64_t>("epoch"), 3);
  EXPECT_EQ(out.names(), std::vector<std::string>{"last.ckpt"});
  write_single_checkpoint(path, single);
  EXPECT_EQ(load_checkpoint(path).get<int64_t>("epoch"), 1);
  EXPECT_EQ(out.names(), std::vector<std::string>{"last.ckpt"});
}

TEST(ShardedCheckpoint, AFileStaysUntilTheFolderThatReplacesItIsComplete) {
  const TemporaryFolder out;
  const std::string path = out / "last.ckpt";
  State single;
  single.set<int64_t>("epoch", 1);
  write_single_checkpoint(path, single);
  write_sharded_checkpoint(path, rank_state(1, 4, 6), {1, 2, "killed"});  // then all ranks were killed
  EXPECT_EQ(load_checkpoint(out / "last-replaced.ckpt").get<int64_t>("epoch"), 1);
  const auto without_rank_one = [&] {
    write_sharded_checkpoint(path, rank_state(0, 0, 4), {0, 2, "two"}, std::chrono::milliseconds(100));
  };
  EXPECT_NE(error_of<CheckpointError>(without_rank_one), "");
  EXPECT_EQ(load_checkpoint(out / "last-replaced.ckpt").get<int64_t>("epoch"), 1);
  save(path, "three");
  EXPECT_EQ(out.names(), std::vector<std::string>{"last.ckpt"});
  fs::remove_all(path);
  write_single_checkpoint(path, single);
  EXPECT_NE(error_of<CheckpointError>(without_rank_one), "");
  EXPECT_EQ(load_checkpoint(path).get<int64_t>("epoch"), 1);
}

TEST(ShardedCheckpoint, AShardThatIsMissingOrDamagedIsNamed) {
  const TemporaryFolder out;
  const std::string folder = (out / "run.ckpt");
  save(folder, "a");
  const std::string shard = (fs::path(folder) / "shard-1-of-2.a.safetensors").string();
  const std::string content = read_file(shard);
  std::string damaged = content;
  damaged.back() ^= 1;
  std::ofstream(shard, std::ios::binary) << damaged;
  EXPECT_NE(error_of_reading(folder).find("shard-1-of-2.a.safetensors: tensor \"model.weight\""), std::string::npos);
  std::ofstream(shard, std::ios::binary) << content.substr(0, content.size() - 1);
  EXPECT_NE(error_of_reading(folder).find("shard-1-of-2.a.safetensors"), std::string::npos);
  fs::remove(shard);
  EXPECT_NE(error_of_reading(folder).find("its shard shard-1-of-2.a.safetensors is missing"), std::string::npos);
}

TEST(ShardedCheckpoint, AShardOfADifferentSaveIsNotTaken) {
  const TemporaryFolder out;
  save((out / "one.ckpt"), "a");
  save((out / "two.ckpt"), "a", {0, 3, 6});
  fs::copy_file((out / "two.ckpt") + "/shard-1-of-2.a.safetensors", (out / "one.ckpt") + "/shard-1-of-2.a.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_NE(error_of_reading((out / "one.ckpt")).find("is not the one that commit.safetensors names"),
            std::string::npos);
}

// Checksums do not help against who writes them: nothing is allocated on a record's word alone.
TEST(ShardedCheckpoint, ALayoutThatWantsMoreThanTheShardsHoldIsNotBelieved) {
  const TemporaryFolder out;
  const std::string folder = out / "run.ckpt";
  save(folder, "a");
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1 << 30, 1 << 30, 1 << 30}, std::vector<int64_t>{-2, 3}, std::vector<int64_t>{3, 3}}) {
    State record = read_checkpoint(sharded_record(folder));
    State sharded = record.part("sharded");
    State layouts;
    layouts.values = sharded.get<ConfigNode>("layout");
    ConfigNode layout = layouts.get<ConfigNode>("model.weight");
    layout.set("shape", ValueType<std::vector<int64_t>>::write(shape));
    layouts.values.set("model.weight", layout);
    sharded.values.set("layout", layouts.values);
    record.values.set("sharded", sharded.values);
    write_checkpoint(sharded_record(folder), record);
    const std::string error = error_of_reading(folder);
    const std::string wanted = shape[0] == 3 ? "the shards hold 6 of the 9 numbers" : "is more than the shards hold";
    EXPECT_NE(error.find(wanted), std::string::npos) << error;
  }
}

TEST(ShardedCheckpoint, ANumberThatNoLayoutPlacesIsRefused) {
  const TemporaryFolder out;
  State without_layout = rank_state(1, 4, 6);
  without_layout.values.set("parts", ConfigNode::map());
  write_sharded_checkpoint(out / "run.ckpt", without_layout, {1, 2, "a"});
  write_sharded_checkpoint(out / "run.ckpt", rank_state(0, 0, 4), {0, 2, "a"});
  const std::string error = error_of_reading(out / "run.ckpt");
  EXPECT_NE(error.find("rank 1's part of \"model.weight\" does not fit"), std::string::npos) << error;
}

TEST(ShardedCheckpoint, IsRemovedWholeAndOnlyWhatBelongsToIt) {
  const TemporaryFolder out;
  save((out / "one.ckpt"), "a");
  EXPECT_EQ(remove_checkpoint((out / "one.ckpt")), "");
  EXPECT_FALSE(fs::exists((out / "one.ckpt")));
  save((out / "two.ckpt"), "a");
  std::ofstream((out / "two.ckpt") + "/notes.txt") << "mine";
  EXPECT_NE(remove_checkpoint((out / "two.ckpt")), "");
  EXPECT_EQ(files_of((out / "two.ckpt")), (std::vector<std::string>{"notes.txt"}));
}

// Rank 1 of a save of two, which keeps running once its shard is written.
pid_t write_shard_in_a_child(const std::string& folder, const std::string& name) {
  const pid_t child = ::fork();
  if (child == 0) {
    at::set_num_threads(1);
    write_sharded_checkpoint(folder, rank_state(1, 4, 6), {1, 2, name});
    while (true) ::pause();
  }
  const std::string shard = folder + "/shard-1-of-2." + name + ".safetensors";
  EXPECT_TRUE(wait_until([&] { return fs::exists(shard) || ::waitpid(child, nullptr, WNOHANG) != 0; }));
  EXPECT_TRUE(fs::exists(shard)) << "the writer ended by itself";
  return child;
}

TEST(ShardedCheckpoint, ShardsOfKilledSavesAreRemovedAndShardsOfLivingOnesStay) {
  const TemporaryFolder out;
  save(out / "last.ckpt", "a");
  const pid_t over_an_older = write_shard_in_a_child(out / "last.ckpt", "b");
  const pid_t new_one = write_shard_in_a_child(out / "new.ckpt", "c");
  ASSERT_GT(over_an_older, 0);
  ASSERT_GT(new_one, 0);
  std::ofstream(out / "last.ckpt/shard-0-of-2.b.safetensors.tmp-0123456789abcdef") << "half";  // of the same save
  std::ofstream(out / "last.ckpt/notes.txt") << "mine";
  std::ofstream(out / "last.ckpt/shard-0-of-2.safetensors") << "of another program";
  remove_abandoned_shards(out.path());
  EXPECT_EQ(files_of(out / "last.ckpt").size(), 6U);  // but for what a writer that is gone has left half written
  EXPECT_EQ(files_of(out / "new.ckpt").size(), 1U);
  for (const pid_t child : {over_an_older, new_one}) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  remove_abandoned_shards(out.path());
  EXPECT_EQ(files_of(out / "last.ckpt"),
            (std::vector<std::string>{"commit.safetensors", "notes.txt", "shard-0-of-2.a.safetensors",
                                      "shard-0-of-2.safetensors", "shard-1-of-2.a.safetensors"}));
  EXPECT_FALSE(fs::exists(out / "new.ckpt"));
  EXPECT_EQ(load_checkpoint(out / "last.ckpt").tensor("model.weight").sum().item<float>(), 15);
}

TEST(ShardedCheckpoint, WhereTheRecordCannotBeReadNoShardIsTakenForALeftover) {
  const TemporaryFolder out;
  save(out / "last.ckpt", "a");
  std::ofstream(out / "last.ckpt/commit.safetensors") << "damaged";
  remove_abandoned_shards(out.path());
  EXPECT_EQ(files_of(out / "last.ckpt").size(), 3U);
}

}  // namespace
}  // namespace levin::sharded_checkpoint_test
