// A fresh folder of YAML files for one test, and the questions that tests of messages ask.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "levin/core/options/value.h"
#include "support/error_text.h"

namespace levin::testing {

/// Files in a folder of their own, removed with the object.
class ConfigFiles {
 public:
  ConfigFiles() {
    std::string pattern = (std::filesystem::temp_directory_path() / "levin_cli_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~ConfigFiles() { std::filesystem::remove_all(folder_); }
  ConfigFiles(const ConfigFiles&) = delete;
  ConfigFiles& operator=(const ConfigFiles&) = delete;

  std::string write(const std::string& name, const std::string& content) const {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

 private:
  std::filesystem::path folder_;
};

/// All problems, one per line.
inline std::string lines(const Problems& problems) {
  std::string text;
  for (const auto& line : problems.lines()) text += line + "\n";
  return text;
}

}  // namespace levin::testing
