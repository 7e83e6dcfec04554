#include "levin/core/process/run_command.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"

extern char** environ;

namespace levin {

namespace {

// The rest of a long output is read too: a program whose pipe is closed may end before its work is done.
std::string read_to_end(int descriptor) {
  std::string text;
  std::array<char, 4096> buffer = {};
  for (;;) {
    const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer.data(), std::min(static_cast<size_t>(got), kMaxCommandOutput - text.size()));
  }
}

// Both streams into `end`; the number of an error, 0: none.
int start(std::vector<char*>& words, int end, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, end, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, end, STDERR_FILENO);
  const int error = ::posix_spawnp(&pid, words[0], &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

CommandResult run_command(std::vector<std::string> words) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  std::array<int, 2> ends = {-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw Error(words[0] + ": no pipe: " + system_error_text(errno) + ".");
  pid_t pid = -1;
  const int error = start(pointers, ends[1], pid);
  ::close(ends[1]);
  CommandResult result;
  if (error == 0) result.output = read_to_end(ends[0]);
  ::close(ends[0]);
  if (error != 0) throw Error(words[0] + " cannot be started: " + system_error_text(error) + ".");
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace levin
