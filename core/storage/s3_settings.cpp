#include "levin/core/storage/s3_settings.h"

#include <initializer_list>
#include <optional>
#include <set>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

constexpr uint64_t kMaxFile = 4 << 20;

using Section = std::map<std::string, std::string>;
using Sections = std::map<std::string, Section>;

// A file of the AWS tools: [sections] with "name = value"; nested values are indented, and are skipped.
Sections read_sections(const std::string& path) {
  Sections sections;
  const std::optional<std::string> text = read_regular_file(path, kMaxFile);
  std::string section;
  for (const std::string& line : split(text.value_or(""), '\n')) {
    const std::string content = trimmed(line.ends_with('\r') ? line.substr(0, line.size() - 1) : line);
    if (content.empty() || content.front() == '#' || content.front() == ';') continue;
    if (content.front() == '[' && content.find(']') != std::string::npos) {
      section = trimmed(content.substr(1, content.find(']') - 1));
      if (section.starts_with("profile ")) section = trimmed(section.substr(8));
      sections[section];
    } else if (const size_t equals = content.find('='); equals != std::string::npos && line.front() != ' ') {
      sections[section][trimmed(content.substr(0, equals))] = trimmed(content.substr(equals + 1));
    }
  }
  return sections;
}

}  // namespace

S3Profile s3_profile(const Variables& variables) {
  S3Profile profile;
  profile.name = variables("AWS_PROFILE").value_or("default");
  const std::string folder = variables("HOME").value_or("") + "/.aws/";
  profile.credentials_path = variables("AWS_SHARED_CREDENTIALS_FILE").value_or(folder + "credentials");
  const std::string config_path = variables("AWS_CONFIG_FILE").value_or(folder + "config");
  const Sections in_credentials = read_sections(profile.credentials_path);
  const Sections in_config = read_sections(config_path);
  if (variables("AWS_PROFILE") && !in_credentials.contains(profile.name) && !in_config.contains(profile.name)) {
    std::set<std::string> known;
    for (const Sections& sections : {in_credentials, in_config}) {
      for (const auto& [each, section] : sections) known.insert(each);
    }
    throw ConfigError("AWS_PROFILE=" + cut_text(profile.name) + ": there is no such profile in " +
                      profile.credentials_path + " or " + config_path + "." +
                      known_names(profile.name, {known.begin(), known.end()}));
  }
  if (const auto found = in_credentials.find(profile.name); found != in_credentials.end())
    profile.credentials = found->second;
  if (const auto found = in_config.find(profile.name); found != in_config.end()) profile.config = found->second;
  return profile;
}

S3Settings s3_settings(const Variables& variables) {
  const S3Profile profile = s3_profile(variables);
  const auto first = [&](std::initializer_list<const char*> names, const std::string& in_config) {
    for (const char* name : names) {
      if (const auto value = variables(name)) return *value;
    }
    return in_config;
  };
  const auto value_of = [&](const char* name) {
    const auto found = profile.config.find(name);
    return found == profile.config.end() ? std::string() : found->second;
  };
  S3Settings settings;
  settings.region = first({"AWS_REGION", "AWS_DEFAULT_REGION"}, value_of("region"));
  if (settings.region.empty()) settings.region = "us-east-1";
  settings.endpoint = first({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, value_of("endpoint_url"));
  settings.ca_file = first({"AWS_CA_BUNDLE"}, value_of("ca_bundle"));
  return settings;
}

}  // namespace levin
