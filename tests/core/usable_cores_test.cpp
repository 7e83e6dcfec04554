// Cores by control groups: the kernel's files, as a container has them, in a folder.
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>

#include "levin/core/process/threads.h"
#include "support/temporary_folder.h"

namespace levin::usable_cores_test {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

class UsableCoresTest : public testing::Test {
 protected:
  UsableCores cores() { return usable_cores(folder_ / "proc", folder_ / "sys"); }
  void groups(const std::string& text) { write(folder_ / "proc/self/cgroup", text); }
  void limit(const std::string& file, const std::string& text) { write(folder_ / ("sys/fs/cgroup/" + file), text); }
  test::TemporaryFolder folder_;
};

int64_t affinity() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  ::sched_getaffinity(0, sizeof cores, &cores);
  return CPU_COUNT(&cores);
}

TEST_F(UsableCoresTest, FollowTheAffinityWithoutControlGroups) {
  EXPECT_EQ(cores().count, affinity());
}

TEST_F(UsableCoresTest, AreFewerUnderAQuotaOfTheGroupOrOneAboveIt) {
  groups("0::/pods/one\n");
  limit("pods/one/cpu.max", "max 100000\n");
  EXPECT_EQ(cores().count, affinity());
  limit("pods/cpu.max", "50000 100000\n");
  EXPECT_EQ(cores().count, 1);
  if (affinity() > 1) {
    EXPECT_NE(cores().limit.find("/pods"), std::string::npos) << cores().limit;
  }
}

TEST_F(UsableCoresTest, FollowAChangedAffinity) {
  cpu_set_t before;
  ::sched_getaffinity(0, sizeof before, &before);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int k = 0; k < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++k) {
    if (CPU_ISSET(k, &before)) CPU_SET(k, &one);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(cores().count, 1);
  ::sched_setaffinity(0, sizeof before, &before);
}

TEST_F(UsableCoresTest, KnowTheFirstVersionOfControlGroups) {
  groups("5:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n");
  limit("cpu/docker/1/cpu.cfs_quota_us", "-1\n");
  limit("cpu/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores().count, affinity());
  limit("cpu/docker/1/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(cores().count, 1);
}

TEST_F(UsableCoresTest, AreNeverZeroForAnyContentsOfTheFiles) {
  groups("0::/\nnonsense\n3:cpu\n");
  for (const char* text : {"", "1 100000", "x y", "-5 100000", "100 0"}) {
    limit("cpu.max", text);
    EXPECT_GE(cores().count, 1) << text;
  }
}

}  // namespace
}  // namespace levin::usable_cores_test
