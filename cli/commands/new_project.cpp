#include "levin/cli/commands/new_project.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "levin/cli/commands/embedded_files.h"
#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/config/arguments.h"
#include "levin/cli/config/text_layout.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/shared_library.h"

namespace levin {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemplateName = "my_project";

// Names that CMake, or this program, uses for a target.
constexpr std::array kReserved{"all",     "clean", "depend", "edit_cache", "help",  "install",       "levin",
                               "package", "test",  "tests",  "levin_core", "torch", "rebuild_cache", "package_source"};

std::string new_usage(int width) {
  return "levin new FOLDER\n\n" +
         wrapped(
             "Writes a project with a model, its data, a run file, tests and CMake files into a new folder, whose last "
             "part is the project's name: letters, digits and underscores, beginning with a letter. The project builds "
             "a levin tool of its own, which knows its classes.",
             width);
}

bool is_identifier(const std::string& name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !name.empty() && is_letter(name[0]) && std::all_of(name.begin(), name.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_';
  });
}

// "my-project 2" could be "my_project_2"; "" if no letter begins it.
std::string similar_identifier(std::string name) {
  for (char& c : name) {
    if (!is_identifier(std::string("a") + c)) c = '_';
  }
  return is_identifier(name) ? name : "";
}

void check_name(const std::string& name, Problems& problems) {
  if (!is_identifier(name)) {
    const std::string similar = similar_identifier(name);
    problems.add({}, "\"" + cut_text(name) + "\"",
                 "a project's name has letters, digits and underscores, and begins with a letter." +
                     (similar.empty() ? "" : " Did you mean \"" + cut_text(similar) + "\"?"));
  } else if (std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end()) {
    problems.add({}, "\"" + name + "\"", "CMake or Levin uses this name for a target. Choose another one.");
  }
}

void check_folder(const fs::path& folder, Problems& problems) {
  std::error_code failed;
  if (!fs::exists(folder, failed) || (fs::is_directory(folder, failed) && fs::is_empty(folder, failed) && !failed))
    return;
  problems.add({}, cut_text(folder.string(), 200),
               fs::is_directory(folder, failed) ? "the folder is not empty. Choose a new one; nothing is overwritten."
                                                : "exists, and is not a folder. Choose another name.");
}

std::string with_name(std::string_view text, const std::string& name) {
  std::string out;
  for (size_t at = text.find(kTemplateName); at != std::string_view::npos; at = text.find(kTemplateName)) {
    out.append(text.substr(0, at)).append(name);
    text.remove_prefix(at + kTemplateName.size());
  }
  return out.append(text);
}

// What CMake needs to find this Levin; "" if it looks there anyway.
std::string package_option() {
  const fs::path libraries = folder_of_code(reinterpret_cast<const void*>(&run_new_project));
  const fs::path package = libraries / "cmake/levin";
  std::error_code ignored;
  if (!fs::exists(package / "levinConfig.cmake", ignored)) return " -DCMAKE_PREFIX_PATH=FOLDER";
  return libraries.string().starts_with("/usr/") ? "" : " " + shell_argument("-Dlevin_DIR=" + package.string());
}

}  // namespace

int run_new_project(const std::vector<std::string>& arguments, int width) {
  Problems problems;
  const SplitArguments read = split_arguments(arguments, {}, problems);
  if (read.help) return print_usage(new_usage(width));
  refuse_rest(read.rest, {}, 1, "a second name. Make one project at a time.", problems);
  if (read.rest.empty()) problems.add({}, "levin new", "the project's name is missing. Write levin new my_project.");
  const fs::path folder = read.rest.empty() ? fs::path() : fs::path(read.rest[0]).lexically_normal();
  // "a/b/" has an empty last part.
  const std::string name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  if (problems.empty()) check_name(name, problems);
  if (problems.empty()) check_folder(folder, problems);
  if (!problems.empty()) return report_problems(problems, "nothing was written. See levin new --help.");

  for (const EmbeddedFile& file : kProjectFiles) {
    const fs::path path = folder / file.path;
    std::error_code failed;
    fs::create_directories(path.parent_path(), failed);
    if (failed)
      throw Error("levin new: cannot make the folder " + path.parent_path().string() + ": " + failed.message() + ".");
    write_output(path.string(), with_name(file.text, name));
  }
  const std::string option = package_option();
  Console::instance().print("The project " + name + " is written. To build it, train it and test it:\n  cd " +
                            shell_argument(folder.string()) + "\n  cmake --preset release" + option +
                            " && cmake --build --preset release\n  build/" + name +
                            " fit --config run.yaml\n  ctest --preset release\nREADME.md explains its files.");
  if (option.ends_with("=FOLDER"))
    Console::instance().warn(
        "This levin has no CMake package next to its libraries: FOLDER is where Levin is installed with "
        "its headers (cmake --install, or the package levin-dev).");
  return kExitOk;
}

}  // namespace levin
