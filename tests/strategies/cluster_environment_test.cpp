// Which rank this is, read from the variables that launchers leave.
#include "levin/strategies/launch/cluster_environment.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

#include "levin/core/options/error.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::cluster_environment_test {
namespace {

using test::has;

using Values = std::map<std::string, std::string>;

std::optional<World> world_of(Values values) {
  return find_world([values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) { std::ofstream(path()) << content; }
  [[nodiscard]] std::string path() const { return folder_ / "file"; }

 private:
  test::TemporaryFolder folder_;
};

Values slurm() {
  return {{"SLURM_NTASKS", "8"},        {"SLURM_PROCID", "5"},
          {"SLURM_LOCALID", "1"},       {"SLURM_NODEID", "1"},
          {"SLURM_JOB_NUM_NODES", "2"}, {"SLURM_JOB_ID", "12345"},
          {"SLURM_JOB_NAME", "train"},  {"SLURM_JOB_NODELIST", "host[5-6]"}};
}

Values torchrun() {
  return {{"TORCHELASTIC_RUN_ID", "x"}, {"RANK", "3"},       {"WORLD_SIZE", "4"},         {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},    {"GROUP_RANK", "1"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "1234"}};
}

TEST(FindWorld, IsEmptyWhereNobodyHasStartedRanks) {
  EXPECT_FALSE(world_of({}));
  EXPECT_FALSE(world_of({{"MASTER_ADDR", "here"}, {"MASTER_PORT", "1"}}));
}

TEST(FindWorld, ReadsTorchrun) {
  const auto world = world_of(torchrun());
  ASSERT_TRUE(world);
  EXPECT_EQ(world->source, "torchrun");
  EXPECT_EQ(world->rank, 3);
  EXPECT_EQ(world->size, 4);
  EXPECT_EQ(world->local_rank, 1);
  EXPECT_EQ(world->local_size, 2);
  EXPECT_EQ(world->node_rank, 1);
  EXPECT_EQ(world->num_nodes, 2);
  EXPECT_EQ(world->master_address, "10.0.0.1");
  EXPECT_EQ(world->master_port, 1234);
}

TEST(FindWorld, ReadsSlurmWithItsFirstHostAndAPortOfTheJob) {
  const auto world = world_of(slurm());
  ASSERT_TRUE(world);
  EXPECT_EQ(world->source, "SLURM");
  EXPECT_EQ(world->rank, 5);
  EXPECT_EQ(world->local_rank, 1);
  EXPECT_EQ(world->local_size, 4);
  EXPECT_EQ(world->node_rank, 1);
  EXPECT_EQ(world->master_address, "host5");
  EXPECT_EQ(world->master_port, 17345);
}

TEST(FindWorld, PrefersTorchrunInsideSlurm) {
  Values both = slurm();
  both.merge(torchrun());
  EXPECT_EQ(world_of(both)->source, "torchrun");
}

TEST(FindWorld, TakesAnAllocationForNoJob) {
  for (const char* name : {"bash", "interactive"}) {
    Values values = slurm();
    values["SLURM_JOB_NAME"] = name;
    EXPECT_FALSE(world_of(values)) << name;
  }
}

TEST(FindWorld, TakesSlurmsStepWhereItIsSmallerThanTheJob) {
  Values values = slurm();
  values.merge(Values{{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_NODELIST", "host6"}});
  values["SLURM_NTASKS"] = "2";
  values["SLURM_PROCID"] = "1";
  values["SLURM_NODEID"] = "0";
  const auto world = world_of(values);
  EXPECT_EQ(world->num_nodes, 1);
  EXPECT_EQ(world->local_size, 2);
  EXPECT_EQ(world->master_address, "127.0.0.1");
}

TEST(FindWorld, TellsAJobsScriptThatSrunIsMissing) {
  Values values = slurm();
  values["ENVIRONMENT"] = "BATCH";
  EXPECT_THROW((void)world_of(values), ConfigError);
  values["SLURM_STEP_ID"] = "0";  // as srun leaves it
  EXPECT_EQ(world_of(values)->size, 8);
  values.erase("SLURM_STEP_ID");
  values["SLURM_NTASKS"] = "1";
  values["SLURM_PROCID"] = values["SLURM_LOCALID"] = values["SLURM_NODEID"] = "0";
  values["SLURM_JOB_NUM_NODES"] = "1";
  EXPECT_EQ(world_of(values)->size, 1);
}

TEST(FindWorld, TakesTheLaunchersInLightningsOrder) {
  const TemporaryFile ranks("batch\nnode1\n");
  const std::vector<std::pair<std::string, Values>> launchers = {
      {"torchrun", torchrun()},
      {"SLURM", slurm()},
      {"LSF",
       {{"LSB_JOBID", "1"},
        {"LSB_DJOB_RANKFILE", ranks.path()},
        {"JSM_NAMESPACE_RANK", "0"},
        {"JSM_NAMESPACE_LOCAL_RANK", "0"},
        {"JSM_NAMESPACE_SIZE", "1"}}},
      {"MPI", {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}},
      {"MASTER_ADDR, RANK and WORLD_SIZE", {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}}}};
  for (size_t first = 0; first < launchers.size(); ++first) {
    Values all;
    for (size_t k = first; k < launchers.size(); ++k)
      all.insert(launchers[k].second.begin(), launchers[k].second.end());
    EXPECT_EQ(world_of(all)->source, launchers[first].first);
  }
}

TEST(FindWorld, ReadsOpenMpi) {
  Values values = {{"OMPI_COMM_WORLD_RANK", "1"},
                   {"OMPI_COMM_WORLD_SIZE", "2"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  const auto world = world_of(values);
  ASSERT_TRUE(world);
  EXPECT_EQ(world->source, "MPI");
  EXPECT_EQ(world->rank, 1);
  EXPECT_EQ(world->master_address, "127.0.0.1");
  EXPECT_GE(world->master_port, 20000);
  values["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  values["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  EXPECT_THROW((void)world_of(values), ConfigError);  // two nodes and no address
}

TEST(FindWorld, ReadsLsfAndItsRankFile) {
  const TemporaryFile ranks("batch\nnode1\nnode1\nnode2\nnode2\n");
  const auto world = world_of({{"LSB_JOBID", "2007"},
                               {"LSB_DJOB_RANKFILE", ranks.path()},
                               {"JSM_NAMESPACE_RANK", "3"},
                               {"JSM_NAMESPACE_LOCAL_RANK", "1"},
                               {"JSM_NAMESPACE_SIZE", "4"}});
  ASSERT_TRUE(world);
  EXPECT_EQ(world->source, "LSF");
  EXPECT_EQ(world->node_rank, 1);
  EXPECT_EQ(world->num_nodes, 2);
  EXPECT_EQ(world->master_address, "node1");
  EXPECT_EQ(world->master_port, 10007);
}

TEST(FindWorld, CountsOpenMpisNodesByTheRanksOnEach) {
  const auto world = world_of({{"OMPI_COMM_WORLD_RANK", "5"},
                               {"OMPI_COMM_WORLD_SIZE", "8"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                               {"OMPI_COMM_WORLD_NODE_RANK", "1"},  // of the ranks of its node, not a node's number
                               {"MASTER_ADDR", "node1"}});
  EXPECT_EQ(world->num_nodes, 4);
  EXPECT_EQ(world->node_rank, 2);
}

TEST(FindWorld, ReadsKubeflow) {
  const Values pod = {{"RANK", "2"},
                      {"WORLD_SIZE", "3"},
                      {"MASTER_ADDR", "job-master-0"},
                      {"MASTER_PORT", "23456"},
                      {"KUBERNETES_PORT", "tcp://10.0.0.1:443"}};
  EXPECT_EQ(world_of(pod)->source, "Kubeflow");
  Values by_hand = pod;
  by_hand["LOCAL_RANK"] = "0";
  EXPECT_NE(world_of(by_hand)->source, "Kubeflow");
  const auto world = world_of(pod);
  EXPECT_EQ(world->rank, 2);
  EXPECT_EQ(world->local_rank, 0);
  EXPECT_EQ(world->local_size, 1);
  EXPECT_EQ(world->node_rank, 2);
  EXPECT_EQ(world->num_nodes, 3);
  EXPECT_EQ(world->master_address, "job-master-0");
}

TEST(FindWorld, NamesAVariableThatCannotBe) {
  auto message = [](Values values) {
    try {
      (void)world_of(std::move(values));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message({{"RANK", "one"}, {"WORLD_SIZE", "2"}}).find("RANK is \"one\""), std::string::npos);
  EXPECT_NE(message({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).find("rank 2 of 2"), std::string::npos);
  Values values = torchrun();
  values.erase("LOCAL_RANK");
  EXPECT_NE(message(values).find("LOCAL_RANK is missing"), std::string::npos);
}

std::string problem_of(Values values) {
  try {
    (void)world_of(std::move(values));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(FindWorld, ReadsMpichAndIntelMpi) {
  Values values = {
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}, {"MASTER_PORT", "77"}};
  const auto world = world_of(values);
  ASSERT_TRUE(world);
  EXPECT_EQ(world->source, "MPI (PMI)");
  EXPECT_EQ(world->rank, 1);
  EXPECT_EQ(world->size, 2);
  EXPECT_EQ(world->local_rank, 1);
  EXPECT_EQ(world->local_size, 2);
  EXPECT_EQ(world->num_nodes, 1);
  EXPECT_EQ(world->master_address, "127.0.0.1");
  EXPECT_EQ(world->master_port, 77);
  values["MPI_LOCALNRANKS"] = "1";
  values["MPI_LOCALRANKID"] = "0";
  EXPECT_TRUE(has(problem_of(values), "mpiexec -genv MASTER_ADDR HOST"));
  values["MASTER_ADDR"] = "node1";
  EXPECT_EQ(world_of(values)->num_nodes, 2);
}

TEST(FindWorld, RefusesHalfOfMpichsVariables) {
  EXPECT_TRUE(has(problem_of({{"PMI_RANK", "1"}}), "PMI_SIZE is missing"));
  EXPECT_TRUE(has(problem_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), "MPI_LOCALRANKID is missing"));
  EXPECT_TRUE(
      has(problem_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}}), "MPI_LOCALNRANKS is missing"));
  EXPECT_EQ(world_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}})->size, 1);
}

TEST(FindWorld, ReadsThePodsOfKubeflowsTrainer) {
  Values pod = {{"PET_NNODES", "3"},          {"PET_NPROC_PER_NODE", "1"},
                {"PET_NODE_RANK", "2"},       {"PET_MASTER_ADDR", "job-node-0-0"},
                {"PET_MASTER_PORT", "29400"}, {"JOB_COMPLETION_INDEX", "2"}};
  const auto world = world_of(pod);
  ASSERT_TRUE(world);
  EXPECT_EQ(world->source, "Kubernetes (PET_NNODES)");
  EXPECT_EQ(world->rank, 2);
  EXPECT_EQ(world->size, 3);
  EXPECT_EQ(world->local_size, 1);
  EXPECT_EQ(world->num_nodes, 3);
  EXPECT_EQ(world->master_address, "job-node-0-0");
  EXPECT_EQ(world->master_port, 29400);
  pod["PET_NPROC_PER_NODE"] = "4";
  EXPECT_TRUE(
      has(problem_of(pod), "PET_NPROC_PER_NODE is \"4\", which is meant for torchrun. Write torchrun --no-python"));
  pod["PET_NPROC_PER_NODE"] = "1";
  pod.erase("PET_MASTER_ADDR");
  EXPECT_TRUE(has(problem_of(pod), "PET_MASTER_ADDR, rank 0's address, is not set"));
  pod["PET_NNODES"] = "1:4";
  pod["MASTER_ADDR"] = "a";
  EXPECT_TRUE(has(problem_of(pod), "PET_NNODES is \"1:4\""));
  pod["PET_NNODES"] = "1";
  EXPECT_FALSE(world_of(pod));
}

TEST(FindWorld, ReadsAnIndexedJobOfKubernetesOrAsksWhatIsMeant) {
  Values pod = {{"JOB_COMPLETION_INDEX", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "pod-0"}, {"MASTER_PORT", "5"}};
  const auto world = world_of(pod);
  ASSERT_TRUE(world);
  EXPECT_EQ(world->source, "Kubernetes (JOB_COMPLETION_INDEX)");
  EXPECT_EQ(world->rank, 1);
  EXPECT_EQ(world->size, 2);
  EXPECT_EQ(world->num_nodes, 2);
  EXPECT_EQ(world->master_address, "pod-0");
  EXPECT_TRUE(has(problem_of({{"JOB_COMPLETION_INDEX", "1"}}), "if each trains alone, set WORLD_SIZE=1"));
  EXPECT_TRUE(has(problem_of({{"JOB_COMPLETION_INDEX", "1"}, {"WORLD_SIZE", "2"}}), "MASTER_ADDR (pod 0)"));
  EXPECT_FALSE(world_of({{"JOB_COMPLETION_INDEX", "1"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(world_of({{"JOB_COMPLETION_INDEX", "1"}, {"NODE_RANK", "1"}}));  // for Levin's own launcher
}

TEST(FindWorld, RefusesANodeBeyondTheNodes) {
  Values values = torchrun();
  values.erase("LOCAL_WORLD_SIZE");
  values["GROUP_RANK"] = "1";
  EXPECT_TRUE(has(problem_of(values), "on node 1 of 1, which is impossible")) << problem_of(values);
  Values step = slurm();
  step["SLURM_NODEID"] = "7";
  EXPECT_TRUE(has(problem_of(step), "on node 7 of ")) << problem_of(step);
}

// With port 0 each rank would train alone, and they would overwrite each other's files.
TEST(FindWorld, RefusesAPortThatIsNone) {
  for (const char* port : {"0", "65536", "9223372036854775807"}) {
    const std::string problem =
        problem_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", port}});
    EXPECT_TRUE(has(problem, std::string("the port of rank 0 is ") + port)) << problem;
  }
}

TEST(FindWorld, RefusesARankWithoutASizeAndASizeWithoutARank) {
  EXPECT_TRUE(has(problem_of({{"RANK", "1"}}), "RANK is 1, but WORLD_SIZE is not set"));
  EXPECT_TRUE(has(problem_of({{"WORLD_SIZE", "4"}}), "WORLD_SIZE is 4, but RANK is not set"));
  EXPECT_FALSE(world_of({{"WORLD_SIZE", "1"}}));
}

TEST(FindWorld, ReadsNodesWithDifferentNumbersOfRanks) {
  Values values = torchrun();  // 2 + 1: the second node's rank
  values.merge(Values{{"GROUP_WORLD_SIZE", "2"}});
  values["WORLD_SIZE"] = "3";
  values["RANK"] = "2";
  values["LOCAL_RANK"] = "0";
  values["LOCAL_WORLD_SIZE"] = "1";
  EXPECT_EQ(world_of(values)->num_nodes, 2);
  EXPECT_EQ(world_of(values)->node_rank, 1);
  EXPECT_EQ(world_of(values)->local_size, 1);
  Values step = slurm();
  step["SLURM_NTASKS"] = "5";
  step["SLURM_PROCID"] = "4";
  step["SLURM_LOCALID"] = "0";
  step["SLURM_NODEID"] = "2";
  step["SLURM_JOB_NUM_NODES"] = "3";
  step["SLURM_TASKS_PER_NODE"] = "2(x2),1";
  EXPECT_EQ(world_of(step)->local_size, 1);
  step["SLURM_STEP_TASKS_PER_NODE"] = "1,1,3";
  EXPECT_EQ(world_of(step)->local_size, 3);
  step["SLURM_STEP_TASKS_PER_NODE"] = "1,1,x";
  EXPECT_TRUE(has(problem_of(step), "SLURM_TASKS_PER_NODE is \"x\""));
}

TEST(FindWorld, RefusesUnevenNodesOfALauncherThatDoesNotSayHowManyThereAre) {
  EXPECT_TRUE(has(problem_of({{"OMPI_COMM_WORLD_RANK", "0"},
                              {"OMPI_COMM_WORLD_SIZE", "3"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
                  "the nodes have different numbers of ranks. Start as many on each"));
}

TEST(FindWorld, GivesEveryStepOfASlurmJobAPortOfItsOwn) {
  Values values = slurm();
  std::set<int64_t> ports;
  for (int step = 0; step < 200; ++step) {
    values["SLURM_STEP_ID"] = std::to_string(step);
    const int64_t port = world_of(values)->master_port;
    EXPECT_TRUE(port >= 15000 && port < 25000) << port;
    ports.insert(port);
  }
  EXPECT_EQ(ports.size(), 200U);
  EXPECT_TRUE(ports.contains(17345));  // Lightning's, for the first
}

TEST(FirstHost, ReadsSlurmsNotation) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("host[5-9]"), "host5");
  EXPECT_EQ(first_host("host[05,07-09]-ib,other"), "host05-ib");
  EXPECT_EQ(first_host("a,b[1-3]"), "a");
  EXPECT_THROW((void)first_host("host["), ConfigError);
}

}  // namespace
}  // namespace levin::cluster_environment_test
