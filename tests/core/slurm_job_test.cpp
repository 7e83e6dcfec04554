// Which job of Slurm this is, as scontrol names it.
#include <gtest/gtest.h>

#include <map>

#include "levin/core/process/this_process.h"

namespace levin::slurm_job_test {
namespace {

std::optional<SlurmJob> job_of(const std::map<std::string, std::string>& values) {
  return slurm_job([&](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

TEST(SlurmJob, IsNamedByItsNumber) {
  EXPECT_FALSE(job_of({}));
  const auto job = job_of({{"SLURM_JOB_ID", "12345"}, {"SLURM_JOB_NAME", "train"}});
  ASSERT_TRUE(job);
  EXPECT_EQ(job->id, "12345");
  EXPECT_EQ(job->restarts, 0);
  EXPECT_EQ(job_of({{"SLURM_JOB_ID", "12345"}, {"SLURM_RESTART_COUNT", "2"}})->restarts, 2);
}

TEST(SlurmJob, OfAnArrayIsNamedByArrayAndTask) {
  EXPECT_EQ(job_of({{"SLURM_JOB_ID", "12349"}, {"SLURM_ARRAY_JOB_ID", "12345"}, {"SLURM_ARRAY_TASK_ID", "2"}})->id,
            "12345_2");
}

TEST(SlurmJob, WithoutANumberNeverReachesACommand) {
  for (const char* id : {"", "abc", "1;reboot", "-1", "12 3", "1234567890123456789012"}) {
    EXPECT_FALSE(job_of({{"SLURM_JOB_ID", id}})) << id;
  }
  EXPECT_EQ(job_of({{"SLURM_JOB_ID", "7"}, {"SLURM_ARRAY_JOB_ID", "x"}, {"SLURM_ARRAY_TASK_ID", "2"}})->id, "7");
}

TEST(SlurmJob, IsNoneWhereSomebodyTypes) {
  for (const char* name : {"bash", "interactive"}) {
    EXPECT_FALSE(job_of({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NAME", name}})) << name;
  }
}

}  // namespace
}  // namespace levin::slurm_job_test
