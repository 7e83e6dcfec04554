// A folder whose run another machine has continued, where the N-th I/O call fails, for every N: a checkpoint that was
// never copied is still there.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "levin/core/files/files.h"
#include "levin/core/storage/folder_store.h"
#include "levin/core/storage/remote_folder.h"
#include "support/io_faults.h"
#include "support/temporary_folder.h"

namespace levin::remote_folder_faults_test {
namespace {

namespace fs = std::filesystem;
using test::IoFault;
using test::IoFaults;
using test::IoOutcome;
using test::TemporaryFolder;

class RemoteFolderFaults : public ::testing::Test {
 protected:
  RemoteFolderFaults() { ::setenv("XDG_CACHE_HOME", caches_.path().c_str(), 1); }
  ~RemoteFolderFaults() override { ::unsetenv("XDG_CACHE_HOME"); }

  // Another machine's objects, and files of this one.
  void prepare() const {
    for (const std::string& folder : {store_, staging_}) fs::remove_all(folder);
    for (const std::string& folder : {store_, run_ + "/checkpoints"}) make_folder(folder);
    write_file_durably(store_ + "/run.writer", "another machine");
    write_file_durably(store_ + "/last.ckpt", "of another machine");
    write_file_durably(run_ + "/last.ckpt", "never copied");
    write_file_durably(run_ + "/checkpoints/best.ckpt", "never copied either");
  }

  [[nodiscard]] IoOutcome begin(const test::IoPlan& plan) const {
    return IoFaults(run_).run(plan, [this] {
      const RemoteFolder folder(
          run_, [this](const FetchLimits& limits) { return std::make_shared<FolderStore>(store_, limits); });
    });
  }

  // Whether a file has this content, in its place or set aside.
  [[nodiscard]] bool has(const std::string& name, const std::string& content) const {
    return std::any_of(fs::directory_iterator(run_), fs::directory_iterator(),
                       [&](const fs::directory_entry& entry) {
                         const bool is_aside = entry.path().filename().string().starts_with(".dropped");
                         return is_aside && read_regular_file((entry.path() / name).string()) == content;
                       }) ||
           read_regular_file(run_ + "/" + name) == content;
  }

 private:
  const TemporaryFolder caches_, folder_;
  const std::string store_ = folder_ / "store", staging_ = caches_ / "levin/staging",
                    run_ = staging_ + "/s3/bucket/run";
};

TEST_F(RemoteFolderFaults, ACheckpointThatWasNeverCopiedIsKept) {
  for (const bool lasting : {false, true}) {
    for (const IoFault fault : {IoFault::no_space, IoFault::io_error, IoFault::kill, IoFault::kill_midway}) {
      for (int call = 1;; ++call) {
        SCOPED_TRACE("fault " + std::to_string(static_cast<int>(fault)) + (lasting ? " lasting" : "") + " at call " +
                     std::to_string(call));
        prepare();
        const IoOutcome outcome = begin({.call = call, .fault = fault, .lasting = lasting});
        ASSERT_NE(outcome.end, IoOutcome::End::crashed) << outcome.error;
        EXPECT_TRUE(has("last.ckpt", "never copied") && has("checkpoints/best.ckpt", "never copied either"));
        EXPECT_TRUE(outcome.end != IoOutcome::End::done || has("last.ckpt", "of another machine"));
        if (outcome.end == IoOutcome::End::killed) {
          EXPECT_EQ(begin({}).end, IoOutcome::End::done);
          EXPECT_TRUE(has("last.ckpt", "never copied") && has("checkpoints/best.ckpt", "never copied either"));
        }
        if (outcome.injected) continue;
        EXPECT_EQ(outcome.end, IoOutcome::End::done) << outcome.error;
        EXPECT_GE(call, 6);
        break;
      }
    }
  }
}

TEST_F(RemoteFolderFaults, WhatCannotBeSetAsideIsNamed) {
  prepare();
  const std::string name = "/.dropped/last.ckpt";
  const auto calls = begin({}).calls;
  int call = 0;
  for (size_t k = 0; k < calls.size(); ++k) {
    if (calls[k].name == "rename" && calls[k].path.ends_with(name)) call = static_cast<int>(k) + 1;
  }
  ASSERT_GT(call, 0);
  prepare();
  const IoOutcome outcome = begin({.call = call, .fault = IoFault::no_space});
  EXPECT_EQ(outcome.end, IoOutcome::End::threw);
  EXPECT_NE(outcome.error.find("/last.ckpt: it was never copied to "), std::string::npos) << outcome.error;
  EXPECT_NE(outcome.error.find("cannot be set aside as "), std::string::npos) << outcome.error;
  EXPECT_NE(outcome.error.find(name + ": No space left on device"), std::string::npos) << outcome.error;
}

}  // namespace
}  // namespace levin::remote_folder_faults_test
