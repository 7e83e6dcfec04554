#include "levin/core/slurm_job.h"

#include <cstdlib>

namespace levin {

namespace {

bool is_number(const std::optional<std::string>& text) {
  return text && !text->empty() && text->size() <= 18 && text->find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

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
