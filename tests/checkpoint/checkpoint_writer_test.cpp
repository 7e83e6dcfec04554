// Files written in the background: what is copied, what is removed, and how failures are reported.
#include "levin/checkpoint/checkpoint_writer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/files/files.h"
#include "support/captured_console.h"
#include "support/io_faults.h"
#include "support/refused_threads.h"
#include "support/temporary_folder.h"

namespace levin::checkpoint_writer_test {
namespace {

namespace fs = std::filesystem;
using test::CapturedConsole;
using test::TemporaryFolder;

State state_of(const at::Tensor& tensor) {
  State state;
  state.set<int64_t>("n", 1);
  state.tensors["w"] = tensor;
  return state;
}

CheckpointRequest request(const std::string& path, const State& state, std::string* outcome = nullptr) {
  CheckpointRequest wanted{path};
  wanted.state = state;
  if (outcome != nullptr)
    wanted.done = [outcome](const std::string& error) { *outcome = error.empty() ? "good" : error; };
  return wanted;
}

TEST(CheckpointWriter, HoldsTheTensorsAsTheyWereWhenTheSaveWasAskedFor) {
  const TemporaryFolder folder;
  CheckpointWriter writer;
  const auto weights = torch::arange(1000, torch::kFloat);
  std::string outcome;
  writer.submit({request(folder / "a.ckpt", state_of(weights), &outcome)}, {});
  weights.zero_();
  writer.finish();
  EXPECT_EQ(outcome, "good");
  EXPECT_TRUE(torch::equal(read_checkpoint(folder / "a.ckpt").tensor("w"), torch::arange(1000, torch::kFloat)));
}

TEST(CheckpointWriter, ReusesItsBuffersWithoutMixingSaves) {
  const TemporaryFolder folder;
  CheckpointWriter writer;
  for (int64_t k = 0; k < 4; ++k) {
    writer.submit({request(folder / "a.ckpt", state_of(torch::full({100 + k}, static_cast<double>(k)))),
                   request(folder / "b.ckpt", state_of(torch::full({100 + k}, -static_cast<double>(k))))},
                  {});
    writer.finish();
    EXPECT_TRUE(torch::equal(read_checkpoint(folder / "a.ckpt").tensor("w"), torch::full({100 + k}, double(k))));
    EXPECT_TRUE(torch::equal(read_checkpoint(folder / "b.ckpt").tensor("w"), torch::full({100 + k}, -double(k))));
  }
}

TEST(CheckpointWriter, DoesNotWriteWhatItCopiedForASaveThatFailed) {
  const TemporaryFolder folder;
  CheckpointWriter writer;
  const auto weights = torch::zeros(100);
  State broken = state_of(weights);
  broken.tensors["without_data"] = torch::empty({3}, torch::kMeta);  // its copy fails, after the copy of "w"
  EXPECT_THROW(writer.submit({request(folder / "a.ckpt", broken)}, {}), std::exception);
  weights.fill_(1);
  writer.submit({request(folder / "b.ckpt", state_of(weights))}, {});
  writer.finish();
  EXPECT_TRUE(torch::equal(read_checkpoint(folder / "b.ckpt").tensor("w"), torch::ones(100)));
}

TEST(CheckpointWriter, WritesAMatrixAndItsTransposeAsTwo) {
  const TemporaryFolder folder;
  CheckpointWriter writer;
  const auto weights = torch::arange(9, torch::kFloat).view({3, 3});
  State state = state_of(weights);
  state.tensors["transposed"] = weights.t();
  writer.submit({request(folder / "a.ckpt", state)}, {});
  writer.finish();
  const State read = read_checkpoint(folder / "a.ckpt");
  EXPECT_TRUE(torch::equal(read.tensor("w"), weights));
  EXPECT_TRUE(torch::equal(read.tensor("transposed"), weights.t()));
}

TEST(CheckpointWriter, WritesAtOnceWhereTheSystemGivesNoThread) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  CheckpointWriter writer;
  std::string outcome;
  {
    const test::RefusedThreads refused;
    writer.submit({request(folder / "a.ckpt", state_of(torch::ones({3})), &outcome)}, {});
  }
  EXPECT_EQ(outcome, "good");
  EXPECT_TRUE(console.has("no thread could be started")) << console.text();
  writer.submit({request(folder / "b.ckpt", state_of(torch::ones({3})), &outcome)}, {});
  writer.finish();
  EXPECT_TRUE(fs::exists(folder / "a.ckpt") && fs::exists(folder / "b.ckpt"));
}

TEST(CheckpointWriter, WritesViewsOfOneStorageEachWithItsOwnShape) {
  const TemporaryFolder folder;
  CheckpointWriter writer;
  const auto base = torch::arange(6, torch::kFloat);
  State state = state_of(base);
  state.tensors["view"] = base.view({2, 3});
  state.tensors["head"] = base.narrow(0, 0, 2);
  state.tensors["tied"] = base;
  writer.submit({request(folder / "a.ckpt", state)}, {});
  writer.finish();
  const State read = read_checkpoint(folder / "a.ckpt");
  for (const auto& [name, tensor] : state.tensors) EXPECT_TRUE(torch::equal(read.tensor(name), tensor)) << name;
}

TEST(CheckpointWriter, RemovesTheOldFileOnlyOnceTheNewOneIsWritten) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "old.ckpt", state_of(torch::ones(3)));
  write_file_durably(folder / "file", "in the way");
  CheckpointWriter writer;
  std::string outcome;
  CheckpointRequest failing = request(folder / "file/new.ckpt", state_of(torch::ones(3)), &outcome);
  failing.obsolete = {folder / "old.ckpt"};
  writer.submit({failing}, {});
  writer.finish();
  EXPECT_NE(outcome.find(folder / "file"), std::string::npos) << outcome;
  EXPECT_TRUE(fs::exists(folder / "old.ckpt"));
  CheckpointRequest good = request(folder / "new.ckpt", state_of(torch::ones(3)), &outcome);
  good.obsolete = {folder / "old.ckpt"};
  writer.submit({good}, {});
  writer.finish();
  EXPECT_EQ(outcome, "good");
  EXPECT_FALSE(fs::exists(folder / "old.ckpt"));
}

TEST(CheckpointWriter, WarnsOfAnOldCheckpointThatItCannotRemoveAndOfNoOther) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "old.ckpt", state_of(torch::ones(3)));
  fs::create_directory(folder / "kept.ckpt");
  write_file_durably(folder / "kept.ckpt/notes.txt", "not part of a checkpoint");
  const CapturedConsole console;
  CheckpointWriter writer;
  std::string outcome;
  CheckpointRequest wanted = request(folder / "new.ckpt", state_of(torch::ones(3)), &outcome);
  wanted.obsolete = {folder / "old.ckpt", folder / "kept.ckpt"};
  writer.submit({wanted}, {});
  writer.finish();
  EXPECT_EQ(outcome, "good");
  EXPECT_TRUE(console.has("ModelCheckpoint: cannot remove " + (folder / "kept.ckpt") + ": ")) << console.text();
  EXPECT_FALSE(console.has("old.ckpt")) << console.text();
}

TEST(CheckpointWriter, WritesIntoTheWorkingDirectoryWhereAPathHasNoFolder) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  CheckpointWriter writer;
  std::string outcome;
  writer.submit({request("bare.ckpt", state_of(torch::ones(3)), &outcome)}, {});
  writer.finish();
  fs::current_path(before);
  EXPECT_EQ(outcome, "good");
  EXPECT_TRUE(torch::equal(read_checkpoint(folder / "bare.ckpt").tensor("w"), torch::ones(3)));
}

TEST(CheckpointWriter, LinksToAFileOfTheSameGroup) {
  const TemporaryFolder folder;
  CheckpointWriter writer;
  std::string outcome;
  CheckpointRequest link{folder / "last.ckpt"};
  link.link_to = folder / "best.ckpt";
  writer.submit({request(folder / "best.ckpt", state_of(torch::ones(3))), link}, {});
  writer.finish();
  EXPECT_EQ(fs::read_symlink(folder / "last.ckpt"), "best.ckpt");
  link.link_to = folder / "missing.ckpt";
  link.done = [&](const std::string& error) { outcome = error; };
  writer.submit({link}, {});
  writer.finish();
  EXPECT_NE(outcome.find("missing.ckpt"), std::string::npos) << outcome;
  EXPECT_EQ(fs::read_symlink(folder / "last.ckpt"), "best.ckpt");
}

TEST(CheckpointWriter, FinishesWhatWasSubmittedWhenItGoes) {
  const TemporaryFolder folder;
  { CheckpointWriter().submit({request(folder / "a.ckpt", state_of(torch::ones(1 << 20)))}, {}); }
  EXPECT_TRUE(torch::equal(read_checkpoint(folder / "a.ckpt").tensor("w"), torch::ones(1 << 20)));
}

TEST(CheckpointWriter, PassesOnWhatDoneThrows) {
  const TemporaryFolder folder;
  CheckpointWriter writer;
  CheckpointRequest wanted = request(folder / "a.ckpt", state_of(torch::ones(3)));
  wanted.done = [](const std::string&) { throw CheckpointError("stop here"); };
  writer.submit({wanted}, {});
  EXPECT_THROW(writer.finish(), CheckpointError);
  EXPECT_NO_THROW(writer.finish());
}

// Each I/O call of an asynchronous save fails once: there is the old file or the new one, and the old one's place is
// not cleared before.
TEST(CheckpointWriter, AFailureAtAnyCallLeavesAGoodCheckpoint) {
  at::set_num_threads(1);  // no threads that a fork would lose
  for (const auto fault :
       {test::IoFault::no_space, test::IoFault::io_error, test::IoFault::kill, test::IoFault::kill_midway}) {
    int call = 1;
    for (;; ++call) {
      const TemporaryFolder folder;
      write_checkpoint(folder / "old.ckpt", state_of(torch::zeros(3)));
      const auto outcome = test::IoFaults(folder.path()).run({.call = call, .fault = fault}, [&] {
        CheckpointWriter writer;
        std::string problem;
        CheckpointRequest wanted = request(folder / "new.ckpt", state_of(torch::ones(3)));
        wanted.obsolete = {folder / "old.ckpt"};
        wanted.done = [&](const std::string& error) { problem = error; };
        writer.submit({wanted}, {});
        writer.finish();
        if (!problem.empty()) throw Error(problem);
      });
      if (!outcome.injected) break;
      int64_t good = 0;
      for (const char* name : {"old.ckpt", "new.ckpt"}) {
        if (!fs::exists(folder / name)) continue;
        const at::Tensor w = read_checkpoint(folder / name).tensor("w");
        EXPECT_TRUE(torch::equal(w, name[0] == 'o' ? torch::zeros(3) : torch::ones(3)));
        ++good;
      }
      EXPECT_GE(good, 1) << "call " << call;
    }
    EXPECT_GE(call, 6) << "open, write, fsync, rename, fsync, remove";
  }
}

TEST(CheckpointWriter, PollNeverWaitsAndTellsOnce) {
  const TemporaryFolder folder;
  CheckpointWriter writer;
  int calls = 0;
  CheckpointRequest wanted = request(folder / "a.ckpt", state_of(torch::ones(1 << 20)));
  wanted.done = [&](const std::string&) { ++calls; };
  writer.submit({wanted}, {});
  while (calls == 0) writer.poll();
  writer.poll();
  writer.finish();
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace levin::checkpoint_writer_test
