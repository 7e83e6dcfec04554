#include "levin/strategies/cluster_environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "levin/core/error.h"

namespace levin {

namespace {

constexpr int64_t kDefaultPort = 12910;  // Lightning's, where a launcher gives an address and no port

int64_t number_in(const std::string& text, const std::string& name) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 0) return value;
  throw ConfigError("environment: " + name + " is \"" + text + "\", not a whole number >= 0. Unset it, or correct it.");
}

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  [[nodiscard]] bool has(const std::string& name) const { return variables_(name).has_value(); }
  [[nodiscard]] std::string text(const std::string& name, const std::string& otherwise) const {
    return variables_(name).value_or(otherwise);
  }
  [[nodiscard]] int64_t number(const std::string& name) const {
    const auto text = variables_(name);
    if (!text) throw ConfigError("environment: " + name + " is missing beside the other variables of its launcher.");
    return number_in(*text, name);
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

World torchrun(const Reader& env) {
  World world;
  world.source = "torchrun";
  world.rank = env.number("RANK");
  world.size = env.number("WORLD_SIZE");
  world.local_rank = env.number("LOCAL_RANK");
  world.local_size = env.number("LOCAL_WORLD_SIZE", world.size);
  world.node_rank = env.number("GROUP_RANK", 0);
  world.num_nodes = world.local_size > 0 ? world.size / world.local_size : 1;
  read_master(env, world, "127.0.0.1", kDefaultPort);
  return world;
}

// An allocation that somebody types into is not a job of ranks.
bool is_slurm_job(const Reader& env) {
  const std::string name = env.text("SLURM_JOB_NAME", "");
  return env.has("SLURM_NTASKS") && env.has("SLURM_PROCID") && name != "bash" && name != "interactive";
}

// Lightning's: the job's last four digits, so that jobs that share a node do not meet.
int64_t slurm_port(const std::string& job_id) {
  const std::string digits = job_id.size() > 4 ? job_id.substr(job_id.size() - 4) : job_id;
  return digits.empty() ? kDefaultPort : 15000 + number_in(digits, "SLURM_JOB_ID");
}

World slurm(const Reader& env) {
  World world;
  world.source = "SLURM";
  world.rank = env.number("SLURM_PROCID");
  world.size = env.number("SLURM_NTASKS");
  world.local_rank = env.number("SLURM_LOCALID");
  world.node_rank = env.number("SLURM_NODEID");
  world.num_nodes = env.number("SLURM_JOB_NUM_NODES", env.number("SLURM_NNODES", 1));
  world.local_size = world.num_nodes > 0 ? world.size / world.num_nodes : world.size;
  const std::string nodes = env.text("SLURM_JOB_NODELIST", env.text("SLURM_NODELIST", ""));
  const std::string host = nodes.empty() || world.num_nodes == 1 ? "127.0.0.1" : first_host(nodes);
  read_master(env, world, host, slurm_port(env.text("SLURM_JOB_ID", "")));
  return world;
}

// The rank file names one host a line, rank by rank; the first is the batch host of jsrun.
World lsf(const Reader& env) {
  World world;
  world.source = "LSF";
  world.rank = env.number("JSM_NAMESPACE_RANK");
  world.size = env.number("JSM_NAMESPACE_SIZE");
  world.local_rank = env.number("JSM_NAMESPACE_LOCAL_RANK");
  const std::string path = env.text("LSB_DJOB_RANKFILE", "");
  std::ifstream file(path);
  std::vector<std::string> hosts;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && (hosts.empty() || hosts.back() != line)) hosts.push_back(line);
  }
  if (hosts.empty()) throw ConfigError("environment: LSB_DJOB_RANKFILE is \"" + path + "\", which lists no host.");
  if (hosts.size() > 1) hosts.erase(hosts.begin());  // where the job script runs
  world.num_nodes = static_cast<int64_t>(hosts.size());
  world.local_size = world.size / world.num_nodes;
  world.node_rank = world.local_size > 0 ? world.rank / world.local_size : 0;
  read_master(env, world, hosts[0], 10000 + env.number("LSB_JOBID") % 1000);
  return world;
}

World open_mpi(const Reader& env) {
  World world;
  world.source = "MPI";
  world.rank = env.number("OMPI_COMM_WORLD_RANK");
  world.size = env.number("OMPI_COMM_WORLD_SIZE");
  world.local_rank = env.number("OMPI_COMM_WORLD_LOCAL_RANK");
  world.local_size = env.number("OMPI_COMM_WORLD_LOCAL_SIZE", world.size);
  world.num_nodes = world.local_size > 0 ? world.size / world.local_size : 1;
  world.node_rank = env.number("OMPI_COMM_WORLD_NODE_RANK", 0);
  if (world.num_nodes > 1 && !env.has("MASTER_ADDR")) {
    throw ConfigError("environment: mpirun started " + std::to_string(world.size) + " processes on " +
                      std::to_string(world.num_nodes) +
                      " nodes, but MASTER_ADDR does not say where rank 0 is. Pass it: mpirun -x MASTER_ADDR=HOST …");
  }
  // One port a job, the same for all of its ranks.
  const std::string job = env.text("OMPI_MCA_ess_base_jobid", env.text("PMIX_NAMESPACE", ""));
  uint64_t mixed = 14695981039346656037ULL;
  for (const char letter : job) mixed = (mixed ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  read_master(env, world, "127.0.0.1", 20000 + static_cast<int64_t>(mixed % 10000));
  return world;
}

// What our own launcher sets, Kubeflow's training operators and people by hand.
World plain(const Reader& env) {
  World world;
  world.source = env.has("LEVIN_LAUNCHED") ? "levin's launcher" : "MASTER_ADDR, RANK and WORLD_SIZE";
  world.rank = env.number("RANK");
  world.size = env.number("WORLD_SIZE");
  world.local_rank = env.number("LOCAL_RANK", 0);
  world.local_size = env.number("LOCAL_WORLD_SIZE", env.has("LOCAL_RANK") ? world.size : 1);
  world.num_nodes = world.local_size > 0 ? world.size / world.local_size : 1;
  world.node_rank =
      env.number("NODE_RANK", env.number("GROUP_RANK", world.rank / std::max<int64_t>(1, world.local_size)));
  read_master(env, world, "127.0.0.1", kDefaultPort);
  return world;
}

World checked(World world) {
  if (world.size >= 1 && world.rank < world.size && world.local_size >= 1 && world.local_rank < world.local_size) {
    return world;
  }
  throw ConfigError("environment: " + world.source + " says that this is rank " + std::to_string(world.rank) + " of " +
                    std::to_string(world.size) + ", on its node " + std::to_string(world.local_rank) + " of " +
                    std::to_string(world.local_size) + ", which cannot be. Are variables left over from another job?");
}

}  // namespace

Variables process_variables() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
  };
}

std::optional<World> find_world(const Variables& variables) {
  const Reader env(variables);
  if (env.has("TORCHELASTIC_RUN_ID")) return checked(torchrun(env));
  if (env.has("LEVIN_LAUNCHED")) return checked(plain(env));
  if (is_slurm_job(env)) return checked(slurm(env));
  if (env.has("LSB_JOBID") && env.has("JSM_NAMESPACE_RANK")) return checked(lsf(env));
  if (env.has("OMPI_COMM_WORLD_RANK")) return checked(open_mpi(env));
  if (env.has("RANK") && env.has("WORLD_SIZE")) return checked(plain(env));
  return std::nullopt;
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

}  // namespace levin
