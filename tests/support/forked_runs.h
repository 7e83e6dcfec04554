// Many runs of a test program without loading LibTorch for each, which takes half of a short run's time: a process that
// has loaded it and started no thread forks one of its own for each rank. See forked_runs.py.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace levin::test {

/// A run is a line of standard input, {"words": […], "ranks": [{variable: value}, …], "log": path}; its answer, a line
/// of standard output, is the list of its ranks' exit statuses, or of 128 + signal. `run` takes the words, in a process
/// of its own for each rank, whose output goes to the log. When a rank fails, the others are killed. Returns at the end
/// of input.
template <class Run>
int serve_runs(const Run& run) {
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = nlohmann::json::parse(line);
    std::map<pid_t, size_t> running;
    for (const auto& variables : request.at("ranks")) {
      const pid_t child = ::fork();
      if (child != 0) {
        running[child] = running.size();
        continue;
      }
      ::setpgid(0, 0);
      const int log =
          ::open(request.at("log").get<std::string>().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
      const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (::dup2(nothing, 0) < 0 || ::dup2(log, 1) < 0 || ::dup2(log, 2) < 0) ::_exit(126);
      for (const auto& [name, value] : variables.items())
        ::setenv(name.c_str(), value.template get<std::string>().c_str(), 1);
      std::exit(run(request.at("words").get<std::vector<std::string>>()));
    }
    std::vector<int> statuses(running.size());
    while (!running.empty()) {
      int status = 0;
      const pid_t ended = ::waitpid(-1, &status, 0);
      if (!running.contains(ended)) continue;
      int& its = statuses[running.at(ended)];
      its = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      running.erase(ended);
      for (const auto& [other, rank] : running) {
        if (its != 0) ::kill(other, SIGKILL);
      }
    }
    std::cout << nlohmann::json(statuses).dump() << std::endl;
  }
  return 0;
}

/// For a program's main: the only word "serve" reads runs from standard input; any others are those of one run.
template <class Run>
int run_or_serve(int argc, char** argv, const Run& run) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  return words == std::vector<std::string>{"serve"} ? serve_runs(run) : run(words);
}

}  // namespace levin::test
