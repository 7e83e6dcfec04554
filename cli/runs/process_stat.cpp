#include "levin/cli/runs/process_stat.h"

#include <fstream>
#include <sstream>

namespace levin {

std::optional<ProcessStat> process_stat(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text, '\0')) return std::nullopt;
  const size_t name_end = text.rfind(')');  // the program's name may contain anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream words(text.substr(name_end + 1));
  ProcessStat stat;
  for (int field = 3; field <= 22; ++field) {
    if (!(words >> stat.start)) return std::nullopt;
    if (field == 3) stat.ended = stat.start == "Z" || stat.start == "X";
  }
  return stat;
}

}  // namespace levin
