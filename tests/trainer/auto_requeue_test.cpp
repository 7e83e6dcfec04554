// When a signal means that Slurm is to start the job again; tests/slurm does it with a real one.
#include "levin/trainer/plan/auto_requeue.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <map>

namespace levin::auto_requeue_test {
namespace {

Variables variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

const std::map<std::string, std::string> kJob{{"SLURM_JOB_ID", "42"}, {"SLURM_JOB_NAME", "train"}};

TEST(AutoRequeue, IsAskedForBySigusr1InAJobOnly) {
  const TrainerOptions options;
  EXPECT_TRUE(asks_for_requeue(options, SIGUSR1, variables(kJob)));
  EXPECT_FALSE(asks_for_requeue(options, SIGTERM, variables(kJob)));
  EXPECT_FALSE(asks_for_requeue(options, 0, variables(kJob)));
  EXPECT_FALSE(asks_for_requeue(options, SIGUSR1, variables({})));
  EXPECT_FALSE(asks_for_requeue(options, SIGUSR1, variables({{"SLURM_JOB_ID", "42"}, {"SLURM_JOB_NAME", "bash"}})));
}

TEST(AutoRequeue, ContinuesAJobThatWasStartedAgain) {
  auto again = kJob;
  again["SLURM_RESTART_COUNT"] = "1";
  EXPECT_FALSE(is_requeued({}, variables(kJob)));
  EXPECT_TRUE(is_requeued({}, variables(again)));
}

TEST(AutoRequeue, CanBeSwitchedOff) {
  TrainerOptions options;
  options.auto_requeue = false;
  auto again = kJob;
  again["SLURM_RESTART_COUNT"] = "1";
  EXPECT_FALSE(asks_for_requeue(options, SIGUSR1, variables(kJob)));
  EXPECT_FALSE(is_requeued(options, variables(again)));
}

TEST(AutoRequeue, ReportsWhatIsInTheWay) {
  EXPECT_EQ(requeue_job(variables({{"SLURM_JOB_ID", "1; touch x"}})), "Not running under Slurm.");
  const char* path = std::getenv("PATH");
  const std::string before = path != nullptr ? path : "";
  ::setenv("PATH", "/nowhere", 1);
  const std::string message = requeue_job(variables(kJob));
  ::setenv("PATH", before.c_str(), 1);
  EXPECT_EQ(message, "Slurm does not start job 42 again: scontrol cannot be started: No such file or directory.");
}

}  // namespace
}  // namespace levin::auto_requeue_test
