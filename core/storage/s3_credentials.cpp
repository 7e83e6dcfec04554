#include "levin/core/storage/s3_credentials.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "levin/core/files/files.h"
#include "levin/core/files/http.h"
#include "levin/core/options/error.h"
#include "levin/core/storage/s3_settings.h"
#include "levin/core/storage/transfer.h"

namespace levin {

namespace {

constexpr uint64_t kMaxFile = 4 << 20;

std::string value_of(const std::map<std::string, std::string>& section, const std::string& name) {
  const auto found = section.find(name);
  return found == section.end() ? "" : found->second;
}

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

S3Credentials s3_credentials(const Variables& variables, const FetchLimits& limits) {
  const auto key = variables("AWS_ACCESS_KEY_ID");
  const auto secret = variables("AWS_SECRET_ACCESS_KEY");
  if (key.has_value() != secret.has_value()) {
    throw ConfigError(std::string(key ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY") + " is set, but " +
                      (key ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID") + " is not. Set both, or neither.");
  }
  if (key) return {*key, *secret, variables("AWS_SESSION_TOKEN").value_or(""), "AWS_ACCESS_KEY_ID"};
  const S3Profile profile = s3_profile(variables);
  for (const auto& section : {profile.credentials, profile.config}) {
    S3Credentials found{value_of(section, "aws_access_key_id"), value_of(section, "aws_secret_access_key"),
                        value_of(section, "aws_session_token"),
                        "profile " + profile.name + " of " + profile.credentials_path};
    if (!found.access_key.empty() && !found.secret_key.empty()) return found;
  }
  return container_credentials(variables, limits).value_or(S3Credentials{});
}

}  // namespace levin
