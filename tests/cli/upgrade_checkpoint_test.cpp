// `levin checkpoint upgrade` as users run it: the program, its output, its exit status, and the files that it leaves.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/core/files/files.h"
#include "levin/core/tensors.h"
#include "levin/core/version.h"
#include "support/error_text.h"
#include "support/levin_runs.h"
#include "support/temporary_folder.h"

namespace levin::upgrade_checkpoint_test {
namespace {

namespace fs = std::filesystem;

using test::expect_parts;
using test::Ran;
using test::run_levin;
using test::TemporaryFolder;

// TQDMProgressBar is the name of a class that has become an alias.
constexpr const char* kOldKey = "callbacks.TQDMProgressBar(refresh_rate=2)";
constexpr const char* kNewKey = "callbacks.ProgressBar(refresh_rate=2)";

State old_state(const std::string& written_by = "0.1.0") {
  State state;
  state.set<std::string>("levin_version", written_by);
  state.set<int64_t>("epoch", 2);
  state.values.set(kOldKey, ConfigNode::map());
  state.values.find(kOldKey)->set("lines", ConfigNode::scalar("7"));
  state.tensors["model.weight"] = torch::tensor({1.0F, std::nanf("1"), -0.0F});
  state.tensors[std::string(kOldKey) + ".sum"] = torch::arange(3);
  return state;
}

void expect_upgraded(const std::string& path) {
  const State old = old_state(), upgraded = read_checkpoint(path);
  EXPECT_EQ(upgraded.get<std::string>("levin_version"), version());
  EXPECT_EQ(upgraded.get<std::string>("upgraded_from"), "0.1.0");
  EXPECT_EQ(upgraded.get<int64_t>("epoch"), 2);
  EXPECT_FALSE(upgraded.has(kOldKey));
  EXPECT_EQ(upgraded.part(kNewKey).get<int64_t>("lines"), 7);
  ASSERT_EQ(upgraded.tensors.size(), 2U);
  EXPECT_TRUE(bitwise_equal(upgraded.tensors.at("model.weight"), old.tensors.at("model.weight")));
  EXPECT_TRUE(upgraded.part(kNewKey).tensors.at("sum").equal(torch::arange(3)));
}

TEST(UpgradeCheckpoint, WritesANewFileAndSaysWhatChanged) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "last.ckpt", old_state());
  const std::string before = read_file(folder / "last.ckpt");
  const Ran ran = run_levin("checkpoint upgrade " + folder / "last.ckpt");
  EXPECT_EQ(ran.status, 0) << ran.output;
  EXPECT_EQ(ran.output, folder / "last.ckpt: upgraded to Levin " + version() + ", in " +
                            folder / "last-upgraded.ckpt\n" + "  " + kOldKey + " is " + kNewKey +
                            "\n  levin_version: 0.1.0 is " + version() + "\n");
  EXPECT_EQ(read_file(folder / "last.ckpt"), before);
  expect_upgraded(folder / "last-upgraded.ckpt");
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"last-upgraded.ckpt", "last.ckpt"}));

  const std::string upgraded = read_file(folder / "last-upgraded.ckpt");
  const Ran again = run_levin("checkpoint upgrade " + folder / "last.ckpt");
  EXPECT_EQ(again.status, 1);
  expect_parts(again.output, {"last-upgraded.ckpt: the file exists. Remove it"});
  const Ran of_upgraded = run_levin("checkpoint upgrade --in-place " + folder / "last-upgraded.ckpt");
  EXPECT_EQ(of_upgraded.output,
            folder / "last-upgraded.ckpt: of Levin " + version() + " already; nothing was written\n");
  EXPECT_EQ(of_upgraded.status, 0);
  EXPECT_EQ(read_file(folder / "last-upgraded.ckpt"), upgraded);
}

TEST(UpgradeCheckpoint, ReplacesAFileThroughALinkInPlace) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "best.ckpt", old_state());
  fs::create_symlink("best.ckpt", folder / "last.ckpt");
  EXPECT_EQ(run_levin("checkpoint upgrade --in-place " + folder / "last.ckpt").status, 0);
  EXPECT_TRUE(fs::is_symlink(folder / "last.ckpt"));
  expect_upgraded(folder / "best.ckpt");
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"best.ckpt", "last.ckpt"}));
}

TEST(UpgradeCheckpoint, UpgradesAFolderAndShardsAndContinuesAfterADamagedFile) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "run/checkpoints");
  write_checkpoint(folder / "run/checkpoints/a.ckpt", old_state());
  folder.write("run/checkpoints/b.ckpt", "not a checkpoint");
  State shard = old_state();
  shard.tensors.clear();
  shard.values.set("parts", ConfigNode::map());
  write_sharded_checkpoint(folder / "run/checkpoints/c.ckpt", shard, {.rank = 0, .world_size = 1, .save = "1"});
  const Ran ran = run_levin("checkpoint upgrade " + folder / "run" + " --output " + folder / "new");
  EXPECT_EQ(ran.status, 1);
  expect_parts(ran.output, {folder / "run/checkpoints/a.ckpt: upgraded", folder / "run/checkpoints/b.ckpt",
                            folder / "run/checkpoints/c.ckpt: upgraded"});
  expect_upgraded(folder / "new/checkpoints/a.ckpt");
  EXPECT_TRUE(read_sharded_checkpoint(folder / "new/checkpoints/c.ckpt").has(kNewKey));
  EXPECT_TRUE(read_sharded_checkpoint(folder / "run/checkpoints/c.ckpt").has(kOldKey));
  EXPECT_EQ(run_levin("checkpoint upgrade --in-place " + folder / "run/checkpoints/c.ckpt").status, 0);
  EXPECT_TRUE(read_sharded_checkpoint(folder / "run/checkpoints/c.ckpt").has(kNewKey));
  EXPECT_EQ(run_levin("checkpoint verify " + folder / "run/checkpoints/c.ckpt").status, 0);
}

TEST(UpgradeCheckpoint, RefusesNewerVersionsDamageAndWrongUse) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "newer.ckpt", old_state("999.1.0"));
  write_checkpoint(folder / "old.ckpt", old_state());
  std::string bytes = read_file(folder / "old.ckpt");
  bytes.back() ^= 1;
  folder.write("damaged.ckpt", bytes);
  const auto output_of = [&](const std::string& arguments, int status) {
    const Ran ran = run_levin("checkpoint upgrade " + arguments);
    EXPECT_EQ(ran.status, status) << arguments;
    return ran.output;
  };
  expect_parts(output_of(folder / "newer.ckpt", 1),
               {"newer.ckpt: Levin 999.1.0 wrote it, which is newer than this one", "Use that Levin, or a newer one"});
  expect_parts(output_of(folder / "damaged.ckpt --in-place", 1), {"is damaged: the checksum differs"});
  EXPECT_EQ(read_file(folder / "damaged.ckpt"), bytes);
  expect_parts(output_of(folder / "missing.ckpt", 1), {"missing.ckpt"});
  expect_parts(output_of(folder / "old.ckpt --output " + folder / "newer.ckpt", 1), {"newer.ckpt: it exists"});
  expect_parts(output_of(folder / "old.ckpt --output x.ckpt --in-place", 2), {"takes --output or --in-place"});
  expect_parts(output_of("", 2), {"got 0 files"});
  expect_parts(run_levin("checkpoint verify --in-place a.ckpt").output, {"takes neither --output nor --in-place"});
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"damaged.ckpt", "newer.ckpt", "old.ckpt"}));
}

}  // namespace
}  // namespace levin::upgrade_checkpoint_test
