#include "levin/core/this_process.h"

#include <unistd.h>

#include <array>
#include <fstream>

namespace levin {

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

std::string host_name() {
  std::array<char, 256> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace levin
