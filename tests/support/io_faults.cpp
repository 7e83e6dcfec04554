#include "support/io_faults.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "support/io_faults_log.h"

namespace levin::test {

namespace {

constexpr unsigned kMaxSeconds = 60;  // for one body

// The log in a file without a name that the child, and a program it becomes, can map too.
class SharedLog {
 public:
  SharedLog() : fd_(::memfd_create("levin-io-faults", 0)) {
    void* memory = MAP_FAILED;
    if (fd_ >= 0 && ::ftruncate(fd_, sizeof(IoFaultLog)) == 0) {
      memory = ::mmap(nullptr, sizeof(IoFaultLog), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    }
    if (memory == MAP_FAILED) throw std::runtime_error("no shared memory for the log of I/O calls");
    log_ = new (memory) IoFaultLog;
  }
  ~SharedLog() {
    ::munmap(log_, sizeof(IoFaultLog));
    ::close(fd_);
  }
  SharedLog(const SharedLog&) = delete;
  SharedLog& operator=(const SharedLog&) = delete;

  [[nodiscard]] IoFaultLog* get() const { return log_; }
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
  IoFaultLog* log_ = nullptr;
};

// In the child: the exit status.
int run_body(const std::string& folder, const IoPlan& plan, const std::function<void()>& body, IoFaultLog* log) {
  int status = 0;
  arm_io_faults(folder.c_str(), plan, log);
  try {
    body();
  } catch (const std::exception& error) {
    std::snprintf(log->error, sizeof log->error, "%s", error.what());
    status = 1;
  }
  disarm_io_faults();
  return status;
}

// In the child: becomes the program; returns only if it cannot.
int run_other(const std::string& folder, const IoPlan& plan, const std::vector<std::string>& arguments,
              const std::string& log_path) {
  Dl_info library{};
  ::dladdr(reinterpret_cast<void*>(&arm_io_faults), &library);
  ::setenv("LD_PRELOAD", library.dli_fname, 1);
  const std::string variable = folder + "\n" + std::to_string(plan.call) + "\n" +
                               std::to_string(static_cast<int>(plan.fault)) + "\n" + (plan.lasting ? "1" : "0") + "\n" +
                               log_path;
  ::setenv(kIoFaultsVariable, variable.c_str(), 1);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, fd);
  ::execv(argv[0], argv.data());
  return 127;
}

IoOutcome wait_for(pid_t child, const IoFaultLog& log) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  IoOutcome outcome;
  outcome.injected = log.injected;
  outcome.error = log.error;
  for (int i = 0; i < std::min(log.count.load(), IoFaultLog::kMaxCalls); ++i) {
    outcome.calls.push_back({log.calls[i].name, log.calls[i].path});
  }
  if (WIFSIGNALED(status)) {
    outcome.end = WTERMSIG(status) == SIGKILL && outcome.injected ? IoOutcome::End::killed : IoOutcome::End::crashed;
    outcome.error = "signal " + std::to_string(WTERMSIG(status));
  } else if (WEXITSTATUS(status) == 0) {
    outcome.end = IoOutcome::End::done;
  } else {
    outcome.end = IoOutcome::End::threw;
    if (outcome.error.empty()) outcome.error = "exit status " + std::to_string(WEXITSTATUS(status));
  }
  return outcome;
}

template <class Work>
pid_t fork_for(Work work) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  if (child == 0) {
    ::alarm(kMaxSeconds);
    ::_exit(work());
  }
  return child;
}

}  // namespace

IoOutcome IoFaults::run(const IoPlan& plan, const std::function<void()>& body) const {
  const SharedLog log;
  return wait_for(fork_for([&] { return run_body(folder_, plan, body, log.get()); }), *log.get());
}

IoOutcome IoFaults::run_program(const IoPlan& plan, const std::vector<std::string>& arguments) const {
  const SharedLog log;
  return wait_for(fork_for([&] { return run_other(folder_, plan, arguments, log.path()); }), *log.get());
}

}  // namespace levin::test
