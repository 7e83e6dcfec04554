// The folder of a run below its experiment's: version_0, version_1, …
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace levin {

/// N of the folders version_N, ascending.
[[nodiscard]] std::vector<int64_t> run_versions(const std::string& experiment);

[[nodiscard]] std::string version_folder(const std::string& experiment, int64_t version);

/// Creates a folder exclusively, even if many jobs start at once. Throws Error naming path and cause.
[[nodiscard]] std::string claim_run_folder(const std::string& experiment);

/// The newest folder, which a run that resumes goes on in; without one, version_0 is created. Many jobs that resume at
/// once get the same one. Throws Error naming path and cause.
[[nodiscard]] std::string folder_to_resume(const std::string& experiment);

/// In a Slurm job: writes a file to the folder with the job and the command it belongs to.
void mark_job(const std::string& folder);

/// The newest folder begun by this command of the job before Slurm requeued it; "" if there is none.
[[nodiscard]] std::string folder_of_job(const std::string& experiment);

}  // namespace levin
