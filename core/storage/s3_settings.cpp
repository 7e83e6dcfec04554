#include "levin/core/storage/s3_settings.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/files/http.h"
#include "levin/core/options/error.h"
#include "levin/core/storage/transfer.h"

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

std::string value_of(const Section& section, const std::string& name) {
  const auto found = section.find(name);
  return found == section.end() ? "" : found->second;
}

// The two files, and the profile's section of each.
struct Profile {
  explicit Profile(const Variables& variables) : name(variables("AWS_PROFILE").value_or("default")) {
    const std::string folder = variables("HOME").value_or("") + "/.aws/";
    credentials_path = variables("AWS_SHARED_CREDENTIALS_FILE").value_or(folder + "credentials");
    const std::string config_path = variables("AWS_CONFIG_FILE").value_or(folder + "config");
    const Sections in_credentials = read_sections(credentials_path);
    const Sections in_config = read_sections(config_path);
    if (variables("AWS_PROFILE") && !in_credentials.contains(name) && !in_config.contains(name)) {
      std::set<std::string> known;
      for (const Sections& sections : {in_credentials, in_config}) {
        for (const auto& [each, section] : sections) known.insert(each);
      }
      throw ConfigError("AWS_PROFILE=" + cut_text(name) + ": there is no such profile in " + credentials_path + " or " +
                        config_path + "." + known_names(name, {known.begin(), known.end()}));
    }
    if (const auto found = in_credentials.find(name); found != in_credentials.end()) credentials = found->second;
    if (const auto found = in_config.find(name); found != in_config.end()) config = found->second;
  }

  std::string name;
  std::string credentials_path;
  Section credentials;
  Section config;
};

// The server of a container (ECS, EKS Pod Identity) that gives credentials of a role.
std::optional<S3Credentials> container_credentials(const Variables& variables, const FetchLimits& limits) {
  std::string url = variables("AWS_CONTAINER_CREDENTIALS_FULL_URI").value_or("");
  if (const auto relative = variables("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"))
    url = "http://169.254.170.2" + *relative;
  if (url.empty()) return std::nullopt;
  std::string token = variables("AWS_CONTAINER_AUTHORIZATION_TOKEN").value_or("");
  if (const auto file = variables("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"))
    token = trimmed(read_file(*file, kMaxFile));
  while (token.ends_with('\n') || token.ends_with('\r')) token.pop_back();
  S3Credentials credentials;
  repeat_attempts(
      limits, "get credentials from " + url, "Check AWS_CONTAINER_CREDENTIALS_FULL_URI, or set AWS_ACCESS_KEY_ID.",
      nullptr, [&]() -> Attempt {
        HttpRequest request = limited_request(limits, nullptr);
        request.url = url;
        request.max_answer = kMaxFile;
        if (!token.empty()) request.headers.push_back("Authorization: " + token);
        const HttpAnswer answer = http_request(request);
        if (answer.failure != HttpFailure::none || !answer.is_success()) return failed_attempt(answer);
        const auto json = nlohmann::json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
        const auto text = [&](const char* name) {
          return json.is_object() && json.contains(name) && json[name].is_string() ? json[name].get<std::string>() : "";
        };
        credentials = {text("AccessKeyId"), text("SecretAccessKey"), text("Token"), url};
        if (credentials.access_key.empty() || credentials.secret_key.empty())
          return {"its answer has no AccessKeyId and SecretAccessKey"};
        return {};
      });
  return credentials;
}

}  // namespace

S3Settings s3_settings(const Variables& variables) {
  const Profile profile(variables);
  const auto first = [&](std::initializer_list<const char*> names, const std::string& in_config) {
    for (const char* name : names) {
      if (const auto value = variables(name)) return *value;
    }
    return in_config;
  };
  S3Settings settings;
  settings.region = first({"AWS_REGION", "AWS_DEFAULT_REGION"}, value_of(profile.config, "region"));
  if (settings.region.empty()) settings.region = "us-east-1";
  settings.endpoint = first({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, value_of(profile.config, "endpoint_url"));
  settings.ca_file = first({"AWS_CA_BUNDLE"}, value_of(profile.config, "ca_bundle"));
  return settings;
}

S3Credentials s3_credentials(const Variables& variables, const FetchLimits& limits) {
  const auto key = variables("AWS_ACCESS_KEY_ID");
  const auto secret = variables("AWS_SECRET_ACCESS_KEY");
  if (key.has_value() != secret.has_value()) {
    throw ConfigError(std::string(key ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY") + " is set, but " +
                      (key ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID") + " is not. Set both, or neither.");
  }
  if (key) return {*key, *secret, variables("AWS_SESSION_TOKEN").value_or(""), "AWS_ACCESS_KEY_ID"};
  const Profile profile(variables);
  for (const Section& section : {profile.credentials, profile.config}) {
    S3Credentials found{value_of(section, "aws_access_key_id"), value_of(section, "aws_secret_access_key"),
                        value_of(section, "aws_session_token"),
                        "profile " + profile.name + " of " + profile.credentials_path};
    if (!found.access_key.empty() && !found.secret_key.empty()) return found;
  }
  return container_credentials(variables, limits).value_or(S3Credentials{});
}

}  // namespace levin
