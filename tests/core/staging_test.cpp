#include "levin/core/storage/staging.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/storage/checkpoint_names.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::staging_test {
namespace {

using test::error_of;
using test::TemporaryFolder;

// The folder for caches is another one during a test.
class Staging : public ::testing::Test {
 protected:
  Staging() { ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }
  ~Staging() override {
    if (before_.empty()) {
      ::unsetenv("XDG_CACHE_HOME");
    } else {
      ::setenv("XDG_CACHE_HOME", before_.c_str(), 1);
    }
  }

  const TemporaryFolder folder_;
  const std::string before_ = std::getenv("XDG_CACHE_HOME") == nullptr ? "" : std::getenv("XDG_CACHE_HOME");
};

TEST_F(Staging, HasAPathForEachUrlAndAUrlForEachOfThesePaths) {
  const std::string root = folder_ / "levin/staging";
  EXPECT_EQ(staging_path("s3://bucket/runs/a"), root + "/s3/bucket/runs/a");
  EXPECT_EQ(staging_path("s3://bucket/runs/a/"), root + "/s3/bucket/runs/a");
  EXPECT_EQ(staged_url(root + "/s3/bucket/runs/a/last.ckpt"), "s3://bucket/runs/a/last.ckpt");
  EXPECT_EQ(staged("s3://bucket/a"), root + "/s3/bucket/a");
  EXPECT_EQ(staged("runs/a"), "runs/a");
  EXPECT_EQ(shown_path(root + "/s3/bucket/a"), "s3://bucket/a");
  EXPECT_EQ(shown_path("/runs/a"), "/runs/a");
}

TEST_F(Staging, HasNoUrlForOtherPaths) {
  for (const std::string& path :
       {folder_ / "levin/staging", folder_ / "levin/staging/s3", folder_ / "levin/staging/.synced/s3/bucket",
        folder_ / "levin/staging/s3/../x", std::string("/elsewhere"), std::string("s3/bucket"), std::string()}) {
    EXPECT_EQ(staged_url(path), "") << path;
  }
  fetch_staged("/elsewhere");  // does nothing
  put_staged("/elsewhere");
  make_remote_folders("/elsewhere");
}

TEST_F(Staging, RefusesWhatCannotBeWritten) {
  EXPECT_EQ(error_of<ConfigError>([] {
              (void)staging_path("https://host/runs");
            }).find("\"https://host/runs\" is not a place for runs and checkpoints: name a folder of this machine"),
            0U);
  for (const std::string url : {"s3://", "s3:///a", "s3://bucket/../b", "s3://bucket/./b", "s3://bucket//b"}) {
    EXPECT_EQ(error_of<ConfigError>([&] { (void)staging_path(url); }),
              "\"" + url + "\" does not name a folder of a bucket. Write s3://bucket/folder.");
  }
}

TEST_F(Staging, TellsLogsCheckpointsAndCommitRecordsApart) {
  EXPECT_FALSE(is_checkpoint_name("metrics.csv"));
  EXPECT_FALSE(is_checkpoint_name("commit.safetensors"));  // not of a checkpoint
  for (const std::string name :
       {"checkpoints/last.ckpt", "checkpoints/last.ckpt/commit.safetensors", "a.ckpt/shard-0-of-2.1.safetensors"}) {
    EXPECT_TRUE(is_checkpoint_name(name)) << name;
  }
  EXPECT_TRUE(is_commit_record("checkpoints/last.ckpt/commit.safetensors"));
  for (const std::string name : {"commit.safetensors", "last.ckpt", "a.ckpt/shard-0-of-2.1.safetensors"}) {
    EXPECT_FALSE(is_commit_record(name)) << name;
  }
}

TEST_F(Staging, ServersHaveFoldersOfTheirOwn) {
  const std::string root = folder_ / "levin/staging";
  ::setenv("AWS_ENDPOINT_URL", "https://minio.example:9000/", 1);
  EXPECT_EQ(staging_path("s3://bucket/a"), root + "/s3_minio.example:9000/bucket/a");
  EXPECT_EQ(staged_url(root + "/s3_minio.example:9000/bucket/a"), "s3://bucket/a");
  EXPECT_EQ(staged_url(root + "/s3/bucket/a"), "");
  ::setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1", 1);
  EXPECT_EQ(staging_path("s3://bucket/a"), root + "/s3_127.0.0.1:1/bucket/a");
  ::unsetenv("AWS_ENDPOINT_URL");
  ::unsetenv("AWS_ENDPOINT_URL_S3");
}

TEST_F(Staging, HasAFolderForEachServer) {
  const TemporaryFolder folder;
  write_file_durably(folder / "config",
                     "[default]\nendpoint_url = http://one:9000/\n[profile b]\nendpoint_url = http://two\n");
  ::setenv("AWS_CONFIG_FILE", (folder / "config").c_str(), 1);
  const std::string of_default = staging_path("s3://bucket/run");
  EXPECT_NE(of_default.find("/s3_one:9000/bucket/run"), std::string::npos) << of_default;
  write_file_durably(folder / "config", "");
  EXPECT_EQ(staging_path("s3://bucket/run"), of_default) << "a file that changes must not move a run";
  write_file_durably(folder / "other", "[profile b]\nendpoint_url = http://two\n");
  ::setenv("AWS_CONFIG_FILE", (folder / "other").c_str(), 1);
  ::setenv("AWS_PROFILE", "b", 1);
  EXPECT_EQ(staged_url(of_default), "");
  EXPECT_NE(staging_path("s3://bucket/run").find("/s3_two/bucket/run"), std::string::npos);
  ::setenv("AWS_ENDPOINT_URL_S3", "http://one:9000", 1);
  EXPECT_EQ(staging_path("s3://bucket/run"), of_default);
  for (const char* name : {"AWS_CONFIG_FILE", "AWS_PROFILE", "AWS_ENDPOINT_URL_S3"}) ::unsetenv(name);
}

TEST_F(Staging, RefusesTheUrlsOfOtherStores) {
  for (const std::string url : {"gs://bucket/a", "file:///a", "S3://bucket/a", "s3:/bucket/a", "https://host/a"}) {
    EXPECT_NE(error_of<ConfigError>([&] { (void)staged(url); }).find("is not a place for runs"), std::string::npos)
        << url;
  }
  for (const std::string path : {"a:b", "/a:/b", "C:/a", ""}) EXPECT_EQ(staged(path), path);
}

TEST_F(Staging, RemembersWhoWrote) {
  const std::string notes = detail::notes_of(staging_path("s3://bucket/run"));
  EXPECT_TRUE(detail::known_writers(notes).empty());
  detail::write_known_writers(notes, {"one", "another"});
  EXPECT_EQ(detail::known_writers(notes), (std::set<std::string>{"one", "another"}));
  detail::write_known_writers(notes, {"third"});
  EXPECT_EQ(detail::known_writers(notes), std::set<std::string>{"third"});
}

TEST_F(Staging, RemembersWhatTheRunRemoves) {
  const std::string folder = staging_path("s3://bucket/run"), file = folder + "/last.ckpt";
  { const NotedRemoval elsewhere("/somewhere/last.ckpt"); }
  EXPECT_FALSE(detail::is_removal_noted("/somewhere/last.ckpt"));
  EXPECT_FALSE(detail::is_removal_noted(file));
  make_folder(folder);
  write_file_durably(file, "old");
  {
    const NotedRemoval removal(file);
    detail::forget_removal(file);
    EXPECT_TRUE(detail::is_removal_noted(file)) << "a removal that is about to happen is not forgotten";
    std::filesystem::remove(file);
  }
  detail::forget_removal(file);
  EXPECT_TRUE(detail::is_removal_noted(file)) << "it is not here";
  write_file_durably(file, "new");
  detail::forget_removal(file);
  EXPECT_FALSE(detail::is_removal_noted(file));
}

TEST_F(Staging, KnowsFilesThatAreOfThisMachineAlone) {
  for (const std::string name :
       {"run.lock", "a/run.writer", ".rank0.json", ".a/b.txt", "a/.b/c", "stop", "save",
        "checkpoints/.dropped/last.ckpt", ".dropped-2/last.ckpt", "last.ckpt.tmp-0123456789abcdef"}) {
    EXPECT_TRUE(detail::is_private(name)) << name;
  }
  for (const std::string name :
       {"metrics.csv", "checkpoints/last.ckpt", "a.b/c", ".mine/.last.ckpt", "a.tmp-1/last.ckpt"})
    EXPECT_FALSE(detail::is_private(name)) << name;
}

TEST_F(Staging, RemembersWhatIsTheSameOnBothSides) {
  detail::SyncNotes notes(folder_ / "notes");
  EXPECT_EQ(notes.find("a/b"), std::nullopt);
  EXPECT_TRUE(notes.all().empty());
  notes.write("a/b", {"etag-1", 3, 17});
  notes.write("c", {"", 4, 18});
  EXPECT_EQ(notes.find("a/b"), (detail::SyncNote{"etag-1", 3, 17}));
  EXPECT_EQ(notes.find("c"), (detail::SyncNote{"", 4, 18}));
  EXPECT_EQ(notes.all().size(), 2U);
  EXPECT_TRUE(detail::is_unchanged({3, 17}, {"etag-1", 3, 17}));
  EXPECT_FALSE(detail::is_unchanged({3, 18}, {"etag-1", 3, 17}));
  EXPECT_FALSE(detail::is_unchanged({4, 18}, {"", 4, 18}));  // it may be half written
  notes.remove("a/b");
  EXPECT_EQ(notes.find("a/b"), std::nullopt);
  notes.write("d", {"etag-2", 3, 17, /*removed=*/true});
  notes.write("c/e", {"etag-3", 1, 1});  // a file and a folder may have one name
  notes.write("f", {"", 3, 17, /*removed=*/true, "checkpoints/a b.ckpt"});
  folder_.write("notes/damaged.note", "no number");
  EXPECT_EQ(notes.find("damaged"), std::nullopt);
  detail::SyncNotes others(folder_ / "notes");  // reads what the first one has written
  EXPECT_EQ(others.find("c"), (detail::SyncNote{"", 4, 18}));
  EXPECT_EQ(others.find("c/e"), (detail::SyncNote{"etag-3", 1, 1}));
  EXPECT_EQ(others.find("d"), (detail::SyncNote{"", 3, 17, true}));
  EXPECT_EQ(others.find("f"), (detail::SyncNote{"", 3, 17, true, "checkpoints/a b.ckpt"}));
  EXPECT_EQ(others.all().size(), 4U);
}

}  // namespace
}  // namespace levin::staging_test
