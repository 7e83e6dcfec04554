// Many runs of a test program without loading LibTorch for each, which takes half of a short run's time: a process that
// has loaded it and started no thread forks one process for each rank. See forked_runs.py.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace levin::test {

/// Sets the folder, the variables, the standard streams and the signals that the request names, in a process that was
/// just forked. Returns false if one of them cannot be set.
inline bool become_run(const nlohmann::json& request, const nlohmann::json& variables) {
  ::setpgid(0, 0);
  for (int number = 1; number < NSIG; ++number) std::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (request.value("only_these_variables", false)) ::clearenv();
  for (const auto& [name, value] : variables.items()) ::setenv(name.c_str(), value.get<std::string>().c_str(), 1);
  const std::string log = request.at("log");
  const std::string errors = request.value("errors", log);
  const int input = ::open("/dev/null", O_RDONLY);
  const int output = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  const int error_output = ::open(errors.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (::dup2(input, 0) < 0 || ::dup2(output, 1) < 0 || ::dup2(error_output, 2) < 0) return false;
  for (const int file : {input, output, error_output}) ::close(file);
  return !request.contains("folder") || ::chdir(request.at("folder").get<std::string>().c_str()) == 0;
}

/// Waits until a rank has ended and returns its process, or 0 if standard input was closed before.
inline pid_t wait_for_one_of(const std::map<pid_t, size_t>& running, int& status) {
  std::vector<pollfd> files = {{.fd = 0, .events = 0, .revents = 0}};  // only to notice that the other end was closed
  for (const auto& [process, rank] : running)
    files.push_back({.fd = static_cast<int>(::syscall(SYS_pidfd_open, process, 0)), .events = POLLIN, .revents = 0});
  while (::poll(files.data(), files.size(), -1) < 0) {
  }
  for (size_t k = 1; k < files.size(); ++k) ::close(files[k].fd);
  if ((files[0].revents & (POLLHUP | POLLERR)) != 0) return 0;
  for (const auto& [process, rank] : running) {
    if (::waitpid(process, &status, WNOHANG) == process) return process;
  }
  return wait_for_one_of(running, status);
}

/// A run is a line of standard input, {"arguments": […], "ranks": [{variable: value}, …], "log": path}; its answer, a
/// line of standard output, is the list of its ranks' exit statuses; -N stands for a rank that signal N ended. `run`
/// gets the arguments, in a separate process for each rank, whose output goes to the log. When a rank fails, the others
/// are killed. A request may also name the file of standard error ("errors") and the working folder ("folder"), and say
/// that the ranks' variables are all that they have ("only_these_variables"). Returns at the end of input; a run that
/// has not ended by then is killed.
template <class Run>
int serve_runs(const Run& run) {
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = nlohmann::json::parse(line);
    std::map<pid_t, size_t> running;
    for (const auto& variables : request.at("ranks")) {
      const pid_t child = ::fork();
      if (child == 0) {
        if (!become_run(request, variables)) ::_exit(126);
        std::exit(run(request.at("arguments").get<std::vector<std::string>>()));
      }
      ::setpgid(child, child);
      running[child] = running.size();
    }
    std::vector<int> statuses(running.size());
    while (!running.empty()) {
      int status = 0;
      const pid_t ended = wait_for_one_of(running, status);
      if (ended != 0) {
        int& its = statuses[running.at(ended)];
        its = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        running.erase(ended);
        if (its == 0) continue;
      }
      for (const auto& [other, rank] : running) ::kill(-other, SIGKILL);
      if (ended == 0) return 0;
    }
    std::cout << nlohmann::json(statuses).dump() << std::endl;
  }
  return 0;
}

/// Returns 0 after `body`, or 1 after printing what it throws on standard error.
template <class Body>
int status_of(const Body& body) {
  try {
    body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

/// For a program's main: if "serve" is the only argument, runs are read from standard input. Other arguments start one
/// run.
template <class Run>
int run_or_serve(int argc, char** argv, const Run& run) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return arguments == std::vector<std::string>{"serve"} ? serve_runs(run) : run(arguments);
}

}  // namespace levin::test
