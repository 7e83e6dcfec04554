#include "levin/data/files/shard_cache.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "levin/core/options/error.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"

namespace levin::shard_cache_test {
namespace {

using namespace test;

ShardCache::Make writing(const std::string& text, int* count = nullptr) {
  return [text, count](const std::string& path) {
    if (count != nullptr) ++*count;
    std::ofstream(path, std::ios::binary) << text;
  };
}

std::vector<std::string> shards_in(const TemporaryFolder& folder) {
  std::vector<std::string> names = folder.names();
  std::erase(names, "locks");
  return names;
}

TEST(ShardCache, MakesAFileOnce) {
  const TemporaryFolder folder;
  ShardCache cache(folder.path(), 1000);
  int made = 0;
  for (int k = 0; k < 3; ++k) {
    const auto file = cache.get("a", 5, writing("hello", &made));
    EXPECT_EQ(read_file(file->path()), "hello");
  }
  EXPECT_EQ(made, 1);
  EXPECT_EQ(shards_in(folder), std::vector<std::string>{"a"});
}

TEST(ShardCache, RemovesWhatWasNotUsedForTheLongestTime) {
  const TemporaryFolder folder;
  ShardCache cache(folder.path(), 100);
  for (const char* name : {"a", "b", "c"}) (void)cache.get(name, 30, writing(std::string(30, 'x')));
  (void)cache.find("a");
  (void)cache.get("d", 30, writing(std::string(30, 'x')));
  EXPECT_EQ(shards_in(folder), (std::vector<std::string>{"a", "c", "d"}));
  (void)cache.get("e", 0, writing(std::string(60, 'x')));  // its size is known when it is there
  EXPECT_EQ(shards_in(folder), (std::vector<std::string>{"d", "e"}));
}

TEST(ShardCache, KeepsFilesInUseAndWarnsThatItIsTooSmall) {
  const CapturedConsole console;
  const TemporaryFolder folder;
  ShardCache cache(folder.path(), 100);
  const auto first = cache.get("a", 60, writing(std::string(60, 'x')));
  EXPECT_FALSE(cache.bring("b", 60, writing(std::string(60, 'y'))));  // ahead of its use there is no room
  EXPECT_EQ(shards_in(folder), std::vector<std::string>{"a"});
  const auto second = cache.get("b", 60, writing(std::string(60, 'y')));
  EXPECT_EQ(shards_in(folder), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(console.has("the cache of shards in " + folder.path() +
                          " needs 120 B for shards that are in use, and cache_size is 100 B. Choose a larger one, or "
                          "a smaller shuffle_shards."))
      << console.text();
}

TEST(ShardCache, LeavesNothingOfAFileThatCouldNotBeMade) {
  const TemporaryFolder folder;
  ShardCache cache(folder.path(), 100);
  const auto fail = [](const std::string& path) {
    std::ofstream(path) << "half";
    throw DataError("cut off");
  };
  EXPECT_THROW((void)cache.get("a", 5, fail), DataError);
  EXPECT_EQ(shards_in(folder), std::vector<std::string>{});
  EXPECT_EQ(read_file(cache.get("a", 5, writing("hello"))->path()), "hello");
}

TEST(ShardCache, OfSeveralProcessesOneMakesAFileAndTheOthersWait) {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  const TemporaryFolder shared;
  std::vector<pid_t> children;
  for (int k = 0; k < 4; ++k) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    ShardCache cache(shared.path(), 1000);
    for (int number = 0; number < 20; ++number) {
      const auto file = cache.get("shard" + std::to_string(number), 1, [&](const std::string& path) {
        std::ofstream(log, std::ios::app) << "x";
        std::ofstream(path) << number;
      });
      if (read_file(file->path()) != std::to_string(number)) ::_exit(1);
    }
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(read_file(log).size(), 20);
}

TEST(ShardCache, AKilledProcessLeavesNeitherALockNorAFile) {
  const TemporaryFolder folder;
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ShardCache cache(folder.path(), 1000);
    const auto used = cache.get("used", 4, writing("used"));
    (void)cache.get("a", 5, [&](const std::string& path) {
      std::ofstream(path) << "hal";
      if (::write(ends[1], "x", 1) != 1) ::_exit(1);
      ::pause();
    });
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  ShardCache cache(folder.path(), 1000);
  EXPECT_FALSE(cache.bring("a", 5, writing("hello")));  // it is being made
  EXPECT_EQ(shards_in(folder), (std::vector<std::string>{"a.part", "used"}));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(cache.find("a"), nullptr);
  const ShardCache next(folder.path(), 1000);  // the next run
  EXPECT_EQ(shards_in(folder), std::vector<std::string>{"used"});
  EXPECT_EQ(read_file(cache.get("a", 5, writing("hello"))->path()), "hello");
  ShardCache small(folder.path(), 5);
  (void)small.get("b", 5, writing("world"));
  EXPECT_EQ(shards_in(folder), std::vector<std::string>{"b"});  // nothing is in use any more
  ::close(ends[0]);
  ::close(ends[1]);
}

// A store and a decompression write more files next to the unfinished one.
TEST(ShardCache, LeavesAloneWhatIsBeingMadeAndRemovesItOnceItsMakerIsGone) {
  const CapturedConsole console;
  const TemporaryFolder folder;
  ShardCache cache(folder.path(), 10);
  std::promise<void> started, finish;
  std::thread maker([&] {
    (void)cache.get("a", 0, [&](const std::string& path) {
      std::ofstream(path + ".packed") << "packed";
      std::ofstream(path + ".packed.tmp-0123456789abcdef") << "half";
      started.set_value();
      finish.get_future().wait();
      EXPECT_EQ(read_file(path + ".packed"), "packed");
      EXPECT_EQ(read_file(path + ".packed.tmp-0123456789abcdef"), "half");
      std::ofstream(path) << "hello";
    });
  });
  started.get_future().wait();
  const ShardCache other(folder.path(), 10);
  (void)cache.get("b", 9, writing(std::string(9, 'x')));  // the cache is full
  finish.set_value();
  maker.join();
  EXPECT_EQ(shards_in(folder), (std::vector<std::string>{"a", "a.part.packed", "a.part.packed.tmp-0123456789abcdef"}));
  const ShardCache next(folder.path(), 10);
  EXPECT_EQ(shards_in(folder), std::vector<std::string>{"a"});
}

TEST(ShardCache, EndsAWaitThatIsAbandoned) {
  const TemporaryFolder folder;
  ShardCache cache(folder.path(), 1000);
  std::promise<void> started, finish;
  std::thread maker([&] {
    (void)cache.get("a", 5, [&](const std::string& path) {
      started.set_value();
      finish.get_future().wait();
      std::ofstream(path) << "hello";
    });
  });
  started.get_future().wait();
  const std::atomic<bool> abandoned = true;
  EXPECT_THROW((void)cache.get("a", 5, writing("other"), &abandoned), DataError);
  finish.set_value();
  maker.join();
  EXPECT_EQ(read_file(cache.get("a", 5, writing("other"))->path()), "hello");
}

TEST(ShardCache, NamesAFolderThatCannotBeWritten) {
  const TemporaryFolder folder;
  folder.write("file", "");
  for (const std::string& path : {folder / "file", folder / "file/below"}) {
    try {
      const ShardCache cache(path, 100);
      FAIL() << path;
    } catch (const DataError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(path), std::string::npos) << text;
      EXPECT_NE(text.find("Not a directory. Choose "), std::string::npos) << text;
    }
  }
}

TEST(ShardCache, IsInTheUsersCacheByDefault) {
  const std::string before = std::getenv("XDG_CACHE_HOME") == nullptr ? "" : std::getenv("XDG_CACHE_HOME");
  ::setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(default_shard_cache(), "/somewhere/levin/streams");
  ::setenv("XDG_CACHE_HOME", "relative", 1);  // the specification says: to be ignored
  EXPECT_NE(default_shard_cache().find("/levin"), std::string::npos);
  EXPECT_EQ(default_shard_cache().find("relative"), std::string::npos);
  before.empty() ? ::unsetenv("XDG_CACHE_HOME") : ::setenv("XDG_CACHE_HOME", before.c_str(), 1);
}

}  // namespace
}  // namespace levin::shard_cache_test
