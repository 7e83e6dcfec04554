#include "levin/strategies/launch/cluster_environment.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/process/this_process.h"

namespace levin {

namespace {

constexpr int64_t kDefaultPort = 12910;  // Lightning's, if a launcher sets an address but no port

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  [[nodiscard]] bool has(const std::string& name) const { return variables_(name).has_value(); }
  [[nodiscard]] std::string text(const std::string& name, const std::string& otherwise) const {
    return variables_(name).value_or(otherwise);
  }
  [[nodiscard]] int64_t number(const std::string& name) const {
    const auto text = variables_(name);
    if (!text) throw ConfigError("environment: " + name + " is missing, but other variables of its launcher are set.");
    return environment_number(*text, name);
  }
  [[nodiscard]] int64_t number(const std::string& name, int64_t otherwise) const {
    return has(name) ? number(name) : otherwise;
  }

 private:
  const Variables& variables_;
};

void read_master(const Reader& env, World& world, const std::string& address, int64_t port) {
  world.master_address = env.text("MASTER_ADDR", address);
  world.master_port = env.number("MASTER_PORT", port);
}

// A launcher's variables for a rank's place. Those that it does not have, or has not set, are derived from the others:
// all ranks are on this node, and each node has consecutive ranks.
struct Names {
  const char* rank;
  const char* size;
  const char* local_rank = nullptr;
  const char* local_size = nullptr;
  const char* node_rank = nullptr;
  const char* num_nodes = nullptr;
};

// A launcher that does not report the number of nodes must start as many ranks on each: otherwise the ranks' nodes are
// ambiguous.
[[noreturn]] void refuse_uneven(const World& world) {
  throw ConfigError("environment: " + world.source + " has started " + count_of(world.size, "rank") + ", of which " +
                    std::to_string(world.local_size) +
                    " are on this node: the nodes have different numbers of ranks. Start as many on each (mpirun "
                    "--map-by ppr:2:node, mpiexec -ppn 2), or use torchrun or srun, which report each rank's node.");
}

World read_place(const Reader& env, const std::string& source, const Names& names,
                 std::optional<int64_t> num_nodes = std::nullopt) {
  World world;
  world.source = source;
  world.rank = env.number(names.rank);
  world.size = env.number(names.size);
  if (names.local_rank != nullptr) world.local_rank = env.number(names.local_rank);
  world.local_size = num_nodes ? world.size / std::max<int64_t>(1, *num_nodes) : world.size;
  if (names.local_size != nullptr) world.local_size = env.number(names.local_size, world.local_size);
  const int64_t per_node = std::max<int64_t>(1, world.local_size);
  if (names.num_nodes != nullptr && env.has(names.num_nodes)) num_nodes = env.number(names.num_nodes);
  if (!num_nodes && world.size % per_node != 0) refuse_uneven(world);
  world.num_nodes = num_nodes.value_or(world.size / per_node);
  world.node_rank = world.rank / per_node;
  if (names.node_rank != nullptr) world.node_rank = env.number(names.node_rank, world.node_rank);
  return world;
}

World torchrun(const Reader& env) {
  World world = read_place(env, "torchrun",
                           {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"});
  read_master(env, world, "127.0.0.1", kDefaultPort);
  return world;
}

bool is_slurm_step(const Reader& env, const Variables& variables) {
  return env.has("SLURM_NTASKS") && env.has("SLURM_PROCID") && !is_interactive_slurm(variables);
}

// Rejects the job script itself, which Slurm runs once for any number of tasks.
void refuse_without_srun(const Reader& env) {
  if (env.text("ENVIRONMENT", "") != "BATCH" || env.has("SLURM_STEP_ID") || env.number("SLURM_NTASKS") <= 1) return;
  throw ConfigError("environment: SLURM has " + env.text("SLURM_NTASKS", "") +
                    " tasks for this job, but the job's script runs on one of them. Write srun before the command.");
}

// Lightning's: the last four digits of the job ID, so that jobs on the same node use different ports. Here steps of one
// job do so as well.
int64_t slurm_port(const Reader& env) {
  const std::string job = env.text("SLURM_JOB_ID", "");
  const std::string digits = job.size() > 4 ? job.substr(job.size() - 4) : job;
  if (digits.empty()) return kDefaultPort;
  constexpr int64_t kStepStride = 1009;  // coprime to 10000: any two of 10000 steps differ
  return 15000 +
         (environment_number(digits, "SLURM_JOB_ID") + env.number("SLURM_STEP_ID", 0) % 10000 * kStepStride) % 10000;
}

// Entry `node` of Slurm's list: "2(x3),1" -> 2, 2, 2, 1. Unset: the list is too short.
std::optional<int64_t> tasks_on(int64_t node, const std::string& list) {
  for (size_t at = 0; at < list.size();) {
    const std::string entry = list.substr(at, list.find(',', at) - at);
    at += entry.size() + 1;
    const size_t times = entry.find("(x");
    const int64_t count =
        times == std::string::npos
            ? 1
            : environment_number(entry.substr(times + 2, entry.find(')', times) - times - 2), "SLURM_TASKS_PER_NODE");
    if (node < count) return environment_number(entry.substr(0, times), "SLURM_TASKS_PER_NODE");
    node -= count;
  }
  return std::nullopt;
}

// srun may start fewer tasks, on fewer nodes, than the job has: the step's variables take precedence over the job's.
World slurm(const Reader& env) {
  refuse_without_srun(env);
  const int64_t nodes =
      env.number("SLURM_STEP_NUM_NODES", env.number("SLURM_JOB_NUM_NODES", env.number("SLURM_NNODES", 1)));
  World world =
      read_place(env, "SLURM", {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr, "SLURM_NODEID"}, nodes);
  const std::string tasks = env.text("SLURM_STEP_TASKS_PER_NODE", env.text("SLURM_TASKS_PER_NODE", ""));
  if (const auto here = tasks_on(world.node_rank, tasks)) world.local_size = *here;
  const std::string list =
      env.text("SLURM_STEP_NODELIST", env.text("SLURM_JOB_NODELIST", env.text("SLURM_NODELIST", "")));
  const std::string host = list.empty() || nodes == 1 ? "127.0.0.1" : first_host(list);
  read_master(env, world, host, slurm_port(env));
  return world;
}

// The rank file has one host per line, in rank order; the first is jsrun's batch host.
std::vector<std::string> lsf_hosts(const Reader& env) {
  const std::string path = env.text("LSB_DJOB_RANKFILE", "");
  std::ifstream file(path);
  std::vector<std::string> hosts;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && (hosts.empty() || hosts.back() != line)) hosts.push_back(line);
  }
  if (hosts.empty()) throw ConfigError("environment: LSB_DJOB_RANKFILE is \"" + path + "\", which lists no host.");
  if (hosts.size() > 1) hosts.erase(hosts.begin());  // where the job script runs
  return hosts;
}

World lsf(const Reader& env) {
  const std::vector<std::string> hosts = lsf_hosts(env);
  World world = read_place(env, "LSF", {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK"},
                           static_cast<int64_t>(hosts.size()));
  read_master(env, world, hosts[0], 10000 + env.number("LSB_JOBID") % 1000);
  return world;
}

// OMPI_COMM_WORLD_NODE_RANK is not the number of a node, but a rank among all jobs on its node, so it is not read.
World open_mpi(const Reader& env) {
  World world = read_place(
      env, "MPI",
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
  if (world.num_nodes > 1 && !env.has("MASTER_ADDR")) {
    throw ConfigError("environment: mpirun started " + count_of(world.size, "process", "processes") + " on " +
                      count_of(world.num_nodes, "node") +
                      ", but MASTER_ADDR, rank 0's address, is not set. Pass it: mpirun -x MASTER_ADDR=HOST …");
  }
  // A port for each job, the same for all of its ranks.
  const std::string job = env.text("OMPI_MCA_ess_base_jobid", env.text("PMIX_NAMESPACE", ""));
  uint64_t mixed = 14695981039346656037ULL;
  for (const char letter : job) mixed = (mixed ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  read_master(env, world, "127.0.0.1", 20000 + static_cast<int64_t>(mixed % 10000));
  return world;
}

// MPICH, Intel MPI and their derivatives.
World mpich(const Reader& env) {
  const bool alone = env.number("PMI_SIZE") == 1;
  World world = read_place(env, "MPI (PMI)",
                           {"PMI_RANK", "PMI_SIZE", alone ? nullptr : "MPI_LOCALRANKID",
                            env.has("MPI_LOCALNRANKS") ? "MPI_LOCALNRANKS" : nullptr});
  if (!alone && !env.has("MPI_LOCALNRANKS")) (void)env.number("MPI_LOCALNRANKS");  // missing
  if (world.num_nodes > 1 && !env.has("MASTER_ADDR")) {
    throw ConfigError("environment: mpiexec started " + count_of(world.size, "process", "processes") + " on " +
                      count_of(world.num_nodes, "node") +
                      ", but MASTER_ADDR, rank 0's address, is not set. Pass it: mpiexec -genv MASTER_ADDR HOST …");
  }
  read_master(env, world, "127.0.0.1", kDefaultPort);
  return world;
}

// The variables that Kubeflow's trainer sets in each pod for torchrun. If Levin is started instead of torchrun, each
// pod is a rank. Unset: a single pod.
std::optional<World> elastic_pod(const Reader& env) {
  const std::string nodes = env.text("PET_NNODES", "");
  const std::string each = env.text("PET_NPROC_PER_NODE", "1");
  if (each != "1" && each != "auto" && each != "cpu" && each != "gpu") {
    throw ConfigError("environment: PET_NPROC_PER_NODE is \"" + cut_text(each) +
                      "\", which is meant for torchrun. Write torchrun --no-python before the command, or set it to 1 "
                      "and start a pod for each rank.");
  }
  if (nodes == "1") return std::nullopt;
  World world;
  world.source = "Kubernetes (PET_NNODES)";
  world.size = world.num_nodes = env.number("PET_NNODES");
  world.rank = world.node_rank = env.number("PET_NODE_RANK", env.number("JOB_COMPLETION_INDEX", -1));
  if (world.rank < 0) (void)env.number("PET_NODE_RANK");  // missing
  if (!env.has("MASTER_ADDR") && !env.has("PET_MASTER_ADDR")) {
    throw ConfigError("environment: PET_NNODES is " + nodes +
                      ", but PET_MASTER_ADDR, rank 0's address, is not set. Set it, or MASTER_ADDR, in every pod.");
  }
  read_master(env, world, env.text("PET_MASTER_ADDR", ""), env.number("PET_MASTER_PORT", kDefaultPort));
  return world;
}

// A pod of an indexed job of Kubernetes, which only numbers its pods. Unset: it trains alone.
std::optional<World> indexed_pod(const Reader& env) {
  const std::string index = env.text("JOB_COMPLETION_INDEX", "");
  if (env.has("NODE_RANK") || env.text("WORLD_SIZE", "") == "1") return std::nullopt;
  if (!env.has("WORLD_SIZE") || !env.has("MASTER_ADDR")) {
    throw ConfigError("environment: JOB_COMPLETION_INDEX is " + cut_text(index) +
                      ", so this is a pod of an indexed job of Kubernetes. If its pods train together, set WORLD_SIZE "
                      "(their number) and MASTER_ADDR (pod 0) in every pod; if each trains alone, set WORLD_SIZE=1.");
  }
  World world;
  world.source = "Kubernetes (JOB_COMPLETION_INDEX)";
  world.size = world.num_nodes = env.number("WORLD_SIZE");
  world.rank = world.node_rank = env.number("JOB_COMPLETION_INDEX");
  read_master(env, world, "", kDefaultPort);
  return world;
}

// Detects Kubeflow's training operator, whose pods contain one rank each. Lightning requires it to be requested by
// name; here it is recognized by variables that only a pod has.
bool is_kubeflow(const Reader& env) {
  return env.has("KUBERNETES_PORT") && env.has("MASTER_ADDR") && env.has("MASTER_PORT") && env.has("RANK") &&
         env.has("WORLD_SIZE") && !env.has("LOCAL_RANK") && !env.has("LOCAL_WORLD_SIZE") && !env.has("GROUP_RANK");
}

// Reads the variables that Levin's launcher, --init-method or the user has set. RANK and WORLD_SIZE alone mean one rank
// per node, until the ranks have connected (place_among).
World plain(const Reader& env, const std::string& source) {
  const bool several_here = env.has("LOCAL_RANK") || env.has("LOCAL_WORLD_SIZE");
  const std::optional<int64_t> nodes = several_here ? std::nullopt : std::optional(env.number("WORLD_SIZE"));
  World world = read_place(env, source,
                           {"RANK", "WORLD_SIZE", env.has("LOCAL_RANK") ? "LOCAL_RANK" : nullptr, "LOCAL_WORLD_SIZE",
                            env.has("NODE_RANK") ? "NODE_RANK" : "GROUP_RANK"},
                           nodes);
  read_master(env, world, "127.0.0.1", kDefaultPort);
  return world;
}

// Several processes that each train as a single rank would overwrite each other's files.
void refuse_incomplete_rank(const Reader& env) {
  const bool alone = !env.has("RANK") && (!env.has("WORLD_SIZE") || env.text("WORLD_SIZE", "") == "1");
  if (alone || env.has("RANK") == env.has("WORLD_SIZE")) return;
  const std::string there = env.has("RANK") ? "RANK" : "WORLD_SIZE";
  throw ConfigError("environment: " + there + " is " + cut_text(env.text(there, "")) + ", but " +
                    (env.has("RANK") ? "WORLD_SIZE" : "RANK") +
                    " is not set. Set both for a run of several ranks, or unset " + there + " for a single one.");
}

World checked(World world) {
  // Port 0 would mean that this process trains alone.
  if (world.master_port < 1 || world.master_port > 65535) {
    throw ConfigError("environment: the port of rank 0 is " + std::to_string(world.master_port) +
                      ", not a port from 1 to 65535. Set MASTER_PORT to a free one.");
  }
  const bool is_rank = world.rank < world.size && world.local_size <= world.size;
  if (is_rank && world.local_rank < world.local_size && world.node_rank < world.num_nodes) return world;
  throw ConfigError("environment: according to " + world.source + ", this is rank " + std::to_string(world.rank) +
                    " of " + std::to_string(world.size) + ", local rank " + std::to_string(world.local_rank) + " of " +
                    std::to_string(world.local_size) + ", on node " + std::to_string(world.node_rank) + " of " +
                    std::to_string(world.num_nodes) + ", which is impossible. Are variables left over from another " +
                    "job, or one missing, such as LOCAL_WORLD_SIZE?");
}

}  // namespace

int64_t environment_number(const std::string& text, const std::string& name) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 0) return value;
  throw ConfigError("environment: " + name + " is \"" + text + "\", not a whole number >= 0. Unset it, or correct it.");
}

std::optional<World> find_world(const Variables& variables) {
  const Reader env(variables);
  if (env.has("TORCHELASTIC_RUN_ID")) return checked(torchrun(env));
  if (env.has("LEVIN_LAUNCHED")) return checked(plain(env, "levin's launcher"));
  if (is_slurm_step(env, variables)) return checked(slurm(env));
  if (env.has("LSB_JOBID") && env.has("JSM_NAMESPACE_RANK")) return checked(lsf(env));
  if (env.has("OMPI_COMM_WORLD_RANK")) return checked(open_mpi(env));
  if ((env.has("PMI_RANK") || env.has("PMI_SIZE")) && !is_interactive_slurm(variables)) return checked(mpich(env));
  if (is_kubeflow(env)) return checked(plain(env, "Kubeflow"));
  if (!env.has("RANK") && env.has("PET_NNODES")) {
    const auto world = elastic_pod(env);
    return world ? std::optional(checked(*world)) : std::nullopt;
  }
  if (!env.has("RANK") && env.has("JOB_COMPLETION_INDEX")) {
    const auto world = indexed_pod(env);
    return world ? std::optional(checked(*world)) : std::nullopt;
  }
  refuse_incomplete_rank(env);
  if (!env.has("RANK")) return std::nullopt;
  World world = checked(plain(env, env.text(kInitMethodVariable, "MASTER_ADDR, RANK and WORLD_SIZE")));
  world.by_hand = true;
  world.place_is_known = env.has("LOCAL_RANK") || env.has("LOCAL_WORLD_SIZE") || env.has("NODE_RANK") ||
                         env.has("GROUP_RANK") || world.size == 1;
  return world;
}

std::string first_host(const std::string& nodelist) {
  const size_t bracket = nodelist.find('[');
  const size_t comma = nodelist.find(',');
  if (bracket == std::string::npos || comma < bracket) return nodelist.substr(0, comma);
  const size_t end = nodelist.find_first_of(",-]", bracket + 1);
  const size_t close = nodelist.find(']', bracket);
  if (end == std::string::npos || close == std::string::npos || end == bracket + 1) {
    throw ConfigError("environment: SLURM's list of nodes is \"" + nodelist + "\", which cannot be read.");
  }
  const size_t after = nodelist.find_first_of(",[", close + 1);
  return nodelist.substr(0, bracket) + nodelist.substr(bracket + 1, end - bracket - 1) +
         nodelist.substr(close + 1, after == std::string::npos ? std::string::npos : after - close - 1);
}

std::string this_machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return host_name() + " " + boot;
}

World place_among(World own, const std::vector<std::string>& machines) {
  std::vector<std::string> nodes;
  const std::string& mine = machines.at(static_cast<size_t>(own.rank));
  own.local_rank = own.local_size = 0;
  for (size_t rank = 0; rank < machines.size(); ++rank) {
    if (machines[rank] == mine) {
      own.local_rank += static_cast<int64_t>(rank) < own.rank;
      ++own.local_size;
    }
    if (std::find(nodes.begin(), nodes.end(), machines[rank]) == nodes.end()) nodes.push_back(machines[rank]);
  }
  own.node_rank = std::find(nodes.begin(), nodes.end(), mine) - nodes.begin();
  own.num_nodes = static_cast<int64_t>(nodes.size());
  own.place_is_known = true;
  return own;
}

}  // namespace levin
