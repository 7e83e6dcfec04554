#include "levin/core/process/this_process.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

namespace levin {

namespace {

bool is_number(const std::optional<std::string>& text) {
  return text && !text->empty() && text->size() <= 18 && text->find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

Variables process_variables() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
  };
}

std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::string own_command_text() {
  std::string text;
  for (const std::string& word : own_command_line()) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string user_cache_folder(const std::string& name) {
  for (const auto& [variable, below] : {std::pair{"XDG_CACHE_HOME", ""}, std::pair{"HOME", "/.cache"}}) {
    const char* folder = std::getenv(variable);
    if (folder != nullptr && folder[0] == '/') return std::string(folder) + below + "/levin/" + name;
  }
  return std::filesystem::temp_directory_path().string() + "/levin-" + name + "-" + std::to_string(::getuid());
}

std::string host_name() {
  std::array<char, 256> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

bool is_interactive_slurm(const Variables& variables) {
  const std::string name = variables("SLURM_JOB_NAME").value_or("");
  return name == "bash" || name == "interactive";
}

std::optional<SlurmJob> slurm_job(const Variables& variables) {
  const auto number = variables("SLURM_JOB_ID");
  if (!is_number(number) || is_interactive_slurm(variables)) return std::nullopt;
  const auto array = variables("SLURM_ARRAY_JOB_ID"), task = variables("SLURM_ARRAY_TASK_ID");
  SlurmJob job;
  job.id = is_number(array) && is_number(task) ? *array + "_" + *task : *number;
  const auto restarts = variables("SLURM_RESTART_COUNT");
  if (is_number(restarts)) job.restarts = std::atoll(restarts->c_str());
  return job;
}

}  // namespace levin
