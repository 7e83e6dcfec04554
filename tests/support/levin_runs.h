// Complete runs of the `levin` tool, like levin_runs.py for Python tests: each is a process forked from one that has
// already loaded LibTorch.
//
//   const Ran ran = run_levin("fit --config 'my run.yaml'", folder);
#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "levin/core/files/files.h"
#include "support/paths.h"
#include "support/run_program.h"
#include "support/temporary_folder.h"

namespace levin::test {

/// The process that forks the runs (served_levin.cpp). It ends with this program.
class LevinRuns {
 public:
  LevinRuns() {
    int requests[2], answers[2];
    if (::pipe(requests) != 0 || ::pipe(answers) != 0) throw std::runtime_error("no pipe for levin");
    const std::string levin = binary_dir() + "/bin/levin";
    process_ = ::fork();
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::setsid();
      ::setenv("LD_LIBRARY_PATH", (binary_dir() + "/lib/served").c_str(), 1);
      ::setenv("OMP_NUM_THREADS", "1", 1);
      ::dup2(requests[0], 0);
      ::dup2(answers[1], 1);
      for (const int end : {requests[0], requests[1], answers[0], answers[1]}) ::close(end);
      ::execl(levin.c_str(), levin.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(requests[0]);
    ::close(answers[1]);
    requests_ = ::fdopen(requests[1], "w");
    answers_ = ::fdopen(answers[0], "r");
  }
  ~LevinRuns() {
    std::fclose(requests_);  // which ends it
    std::fclose(answers_);
    ::waitpid(process_, nullptr, 0);
  }
  LevinRuns(const LevinRuns&) = delete;
  LevinRuns& operator=(const LevinRuns&) = delete;

  Ran run(const nlohmann::json& arguments, const std::string& folder) {
    const std::string log = output_ / "log";
    std::filesystem::remove(log);
    const nlohmann::json request = {{"arguments", arguments},
                                    {"ranks", {variables()}},
                                    {"only_these_variables", true},
                                    {"log", log},
                                    {"folder", folder}};
    std::fprintf(requests_, "%s\n", request.dump().c_str());
    std::fflush(requests_);
    std::string answer;
    for (int c; (c = std::fgetc(answers_)) != EOF && c != '\n';) answer += static_cast<char>(c);
    if (answer.empty()) throw std::runtime_error("levin cannot be served: " + arguments.dump());
    const int status = nlohmann::json::parse(answer).at(0);
    return {status < 0 ? 128 - status : status, read_file(log)};
  }

 private:
  // Variables of this program, for the run: it may start other processes, which must not be served.
  static nlohmann::json variables() {
    auto all = nlohmann::json::object();
    for (char** at = environ; *at != nullptr; ++at) {
      const std::string text = *at;
      all[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
    }
    all["OMP_NUM_THREADS"] = "1";
    return all;
  }

  TemporaryFolder output_;
  pid_t process_;
  std::FILE* requests_;
  std::FILE* answers_;
};

/// Runs `levin ARGUMENTS` in a folder, with one thread. They are split as a shell would, but no other shell syntax is
/// supported. Its standard input is empty.
inline Ran run_levin(const std::string& arguments, const std::string& folder = ".") {
  static LevinRuns runs;
  wordexp_t split;
  if (::wordexp(arguments.c_str(), &split, WRDE_NOCMD | WRDE_UNDEF) != 0)
    throw std::runtime_error("cannot split the arguments: " + arguments);
  nlohmann::json list = {binary_dir() + "/bin/levin"};
  for (size_t k = 0; k < split.we_wordc; ++k) list.push_back(split.we_wordv[k]);
  ::wordfree(&split);
  return runs.run(list, std::filesystem::absolute(folder).string());
}

}  // namespace levin::test
