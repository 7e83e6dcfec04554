#include "levin/core/storage/folder_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "levin/core/files/files.h"
#include "levin/core/storage/open_store.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::folder_store_test {
namespace {

using test::error_of;
using test::TemporaryFolder;

std::vector<std::string> keys_of(const std::vector<StoredObject>& objects) {
  std::vector<std::string> keys;
  for (const StoredObject& object : objects) keys.push_back(object.key);
  return keys;
}

TEST(FolderStore, WritesFindsReadsFetchesAndRemoves) {
  const TemporaryFolder folder;
  const auto store = open_store(folder.path() + "/data/");
  EXPECT_EQ(store->find("a/b"), std::nullopt);
  store->put("a/b", "content");
  EXPECT_EQ(read_file(folder / "data/a/b"), "content");
  const auto found = store->find("a/b");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->size, 7U);
  EXPECT_EQ(store->read("a/b"), "content");
  EXPECT_EQ(store->read("a/b", 3), "tent");
  EXPECT_EQ(store->read("a/b", 3, 2), "te");
  EXPECT_EQ(store->read("a/b", 3, 200), "tent");
  EXPECT_EQ(store->read("a/b", 7, 1), "");
  EXPECT_EQ(store->read("a/b", 1ULL << 63, 1), "");
  store->fetch("a/b", folder / "cache/b");
  EXPECT_EQ(read_file(folder / "cache/b"), "content");
  store->put_file("c", folder / "cache/b");
  EXPECT_EQ(store->read("c"), "content");
  store->put("a/b", "new");
  EXPECT_NE(store->find("a/b")->etag, found->etag);
  store->remove("a/b");
  store->remove("a/b");
  EXPECT_EQ(store->find("a/b"), std::nullopt);
  EXPECT_EQ(store->find("a"), std::nullopt);  // a folder is no object
  EXPECT_EQ(store->find("c/d"), std::nullopt);
  EXPECT_EQ(store->url("c"), folder / "data/c");
}

TEST(FolderStore, ListsAllFoldersSortedAndWithoutUnfinishedFiles) {
  const TemporaryFolder folder;
  const auto store = open_store("file://" + folder.path());
  EXPECT_EQ(keys_of(store->list()), std::vector<std::string>{});
  for (const char* key : {"train/2", "train/10", "train/1/x", "training", "val/1"}) store->put(key, "");
  folder.write("val/" + std::filesystem::path(temporary_name("x")).filename().string(), "");
  EXPECT_EQ(keys_of(store->list()),
            (std::vector<std::string>{"train/1/x", "train/10", "train/2", "training", "val/1"}));
  EXPECT_EQ(keys_of(store->list("train/")), (std::vector<std::string>{"train/1/x", "train/10", "train/2"}));
  EXPECT_EQ(keys_of(store->list("train/1")), (std::vector<std::string>{"train/1/x", "train/10"}));
  EXPECT_EQ(keys_of(store->list("train")).size(), 4U);
  EXPECT_EQ(store->list("no/such").size(), 0U);
}

TEST(FolderStore, OneOfManyWritersMakesAFile) {
  const TemporaryFolder folder;
  const auto store = open_store(folder.path());
  std::atomic<int> winners = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] { winners += store->put_if_absent("lock", std::to_string(i)) ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
  EXPECT_FALSE(store->put_if_absent("lock", "late"));
  EXPECT_EQ(store->read("lock").size(), 1U);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"lock"});
}

TEST(FolderStore, NamesWhatIsWrong) {
  const TemporaryFolder folder;
  const auto store = open_store(folder.path());
  for (const char* key : {"../a", "/a", "", "a/../b", "a//b"}) {
    EXPECT_EQ(error_of<StorageError>([&] { (void)store->find(key); }),
              "the key \"" + std::string(key) + "\" does not name a file below " + folder.path() +
                  ". A key is a relative path without \"..\", such as \"train/00001.mds\".");
  }
  EXPECT_EQ(error_of<StorageError>([&] { (void)store->read("a"); }),
            "cannot read " + folder / "a" + ": No such file or directory. Check the path and its permissions.");
  EXPECT_EQ(error_of<StorageError>([&] { store->fetch("a", folder / "b"); }),
            "cannot read " + folder / "a" + ": No such file or directory. Check the path and its permissions.");
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(error_of<StorageError>([&] { (void)store->read("fifo"); }),
            "cannot read " + folder / "fifo" + ": it is not a regular file. Name a file.");
  std::filesystem::create_directory(folder / "taken");
  EXPECT_EQ(error_of<StorageError>([&] { store->put("taken", "x"); }),
            "cannot write " + folder / "taken" + ": Is a directory. Check the path and its permissions.");
  EXPECT_EQ(error_of<StorageError>([&] { (void)open_store(folder / "none")->list(); }),
            "cannot list " + folder / "none" + ": No such file or directory. Check the path and its permissions.");
  std::atomic<bool> abandoned = true;
  EXPECT_EQ(error_of<StorageError>([&] {
              folder.write("whole", "x");
              store->fetch("whole", folder / "b", &abandoned);
            }),
            "cannot copy " + folder / "whole" + ": it was cancelled.");
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"fifo", "taken", "whole"}));
}

TEST(OpenStore, KnowsItsSchemes) {
  for (const char* url : {"s3://bucket/a", "https://host/a", "http://host"}) EXPECT_TRUE(is_remote(url)) << url;
  for (const char* url : {"/data", "data", "file:///data", "", "s3:/bucket", "gs://bucket"})
    EXPECT_FALSE(is_remote(url)) << url;
  EXPECT_EQ(open_store("file:///data/x")->url("k"), "/data/x/k");
  EXPECT_EQ(
      error_of<ConfigError>([] { (void)open_store("gs://bucket/a"); }),
      "\"gs://\" is not a store that Levin reads. Known: a folder, file://, s3://, https://, http://. Google Cloud "
      "Storage speaks S3's protocol too: write s3://bucket/prefix and set "
      "AWS_ENDPOINT_URL_S3=https://storage.googleapis.com.");
  EXPECT_EQ(error_of<ConfigError>([] { (void)open_store("file://data"); }),
            "\"file://data\" does not name a folder of this machine. Write file:///folder, with three slashes.");
  EXPECT_EQ(error_of<ConfigError>([] { (void)open_store(""); }),
            "a store needs a URL: a folder, s3://bucket/prefix or https://host/path.");
}

}  // namespace
}  // namespace levin::folder_store_test
