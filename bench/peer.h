// The Python baselines of benchmarks ("peers"): programs in bench/peers, run by the Python that `./dev bench --peers`
// installs. A peer is one process for the whole benchmark. It loads its data once, waits without using the processor
// while others run, and runs one round for each line it is sent, on the cores this process is pinned to.
//
//   if (auto peer = bench::Peer::start("overhead")) {
//     candidates.push_back({"raw PyTorch", [peer] { return peer->round("raw sgd 938"); }});
//   }
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bench {

/// A started program whose standard input and output are pipes; its standard error goes to a file. The destructor
/// closes its input and waits for it.
class Process {
 public:
  Process(const std::vector<std::string>& command, std::string log);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void send(const std::string& line);
  /// The next line of its output as JSON. Throws std::runtime_error with the end of the log if there is none.
  [[nodiscard]] nlohmann::json answer();

 private:
  [[noreturn]] void fail() const;

  std::string name_;
  std::string log_;
  pid_t pid_ = -1;
  std::FILE* in_ = nullptr;
  std::FILE* out_ = nullptr;
};

/// The command line of bench/peers/<program>.py ($LEVIN_BENCH_PEERS: a different folder). Empty, with a note printed
/// once on standard output, if $LEVIN_PEERS is not set, which `./dev bench` sets to the folder of the installed peers.
[[nodiscard]] std::vector<std::string> peer_command(const std::string& program,
                                                    const std::vector<std::string>& arguments);

/// The file below build/bench (or $LEVIN_BENCH_DIR) that standard error of `program` goes to.
[[nodiscard]] std::string peer_log(const std::string& program);

class Peer {
 public:
  /// Starts the program and waits until it is ready. Returns null if peers are not installed.
  [[nodiscard]] static std::shared_ptr<Peer> start(const std::string& program,
                                                   const std::vector<std::string>& arguments = {});

  /// Returns why the program cannot run rounds of this kind here ("no module named lightning"); "" if it can. Only for
  /// programs that pass serve() a function for this.
  [[nodiscard]] std::string why_not(const std::string& way);

  /// Runs one round and returns its measurement. `words` select the round, as the program's first lines explain.
  double round(const std::string& words);

  /// Versions of Python, torch and Lightning.
  [[nodiscard]] const nlohmann::json& versions() const { return versions_; }

 private:
  Peer(const std::vector<std::string>& command, const std::string& log) : process_(command, log) {
    versions_ = process_.answer();
  }

  Process process_;
  nlohmann::json versions_;
};

}  // namespace bench
