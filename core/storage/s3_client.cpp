#include "levin/core/storage/s3_client.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "levin/core/files/url_text.h"
#include "levin/core/files/xml_tree.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

constexpr const char* kEmptySha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string amazon_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts)};
}

// Whether a bucket may be a part of a host's name, for which certificates of AWS are made.
bool is_host_label(const std::string& bucket) {
  return bucket.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
}

// The error in an answer; an element without name if there is none.
XmlElement error_in(const HttpAnswer& answer) {
  if (answer.body.find("<Error") == std::string::npos) return {};
  try {
    XmlElement root = read_xml(answer.body);
    return root.name == "Error" ? root : XmlElement{};
  } catch (const Error&) {
    return {};  // cut, or a proxy's page
  }
}

}  // namespace

S3Client::S3Client(std::string bucket, Variables variables, FetchLimits limits)
    : bucket_(std::move(bucket)),
      variables_(std::move(variables)),
      limits_(std::move(limits)),
      settings_(s3_settings(variables_)),
      region_(settings_.region) {
  if (settings_.endpoint.empty()) return;
  std::string endpoint = settings_.endpoint;
  const size_t colon = endpoint.find("://");
  scheme_ = endpoint.substr(0, std::min(colon, endpoint.size()));
  if (colon == std::string::npos || (scheme_ != "http" && scheme_ != "https") || url_origin(endpoint).empty() ||
      split_credentials(endpoint).url != endpoint) {
    throw ConfigError("AWS_ENDPOINT_URL_S3: \"" + cut_text(split_credentials(endpoint).url) +
                      "\" is not a server's URL. Set it to one without user and password, such as "
                      "http://127.0.0.1:9000.");
  }
  const size_t slash = std::min(endpoint.find('/', colon + 3), endpoint.size());
  host_ = endpoint.substr(colon + 3, slash - colon - 3);
  base_path_ = endpoint.substr(slash);
  while (base_path_.ends_with('/')) base_path_.pop_back();
  const std::string default_port = scheme_ == "https" ? ":443" : ":80";
  if (host_.ends_with(default_port)) host_.resize(host_.size() - default_port.size());
}

S3Credentials S3Client::credentials() {
  const std::lock_guard lock(mutex_);
  if (!credentials_) credentials_ = s3_credentials(variables_, limits_);
  return *credentials_;
}

bool S3Client::renew_credentials(const S3Credentials& used) {
  const auto differs = [&](const S3Credentials& now) {
    return now.access_key != used.access_key || now.secret_key != used.secret_key ||
           now.session_token != used.session_token;
  };
  if (differs(credentials())) return true;  // another thread has done it
  const S3Credentials now = s3_credentials(variables_, limits_);
  const std::lock_guard lock(mutex_);
  credentials_ = now;
  return differs(now);
}

S3Client::Signed S3Client::sign(const S3Call& call) {
  Signed result;
  result.credentials = credentials();
  {
    const std::lock_guard lock(mutex_);
    result.region = region_;
  }
  S3Request parts;
  parts.method = call.method;
  parts.query = call.query;
  parts.headers = call.headers;
  parts.host = host_;
  if (host_.empty())
    parts.host = "s3." + result.region + (result.region.starts_with("cn-") ? ".amazonaws.com.cn" : ".amazonaws.com");
  if (host_.empty() && is_host_label(bucket_)) {
    parts.host = bucket_ + "." + parts.host;
    parts.path = "/";
  } else {
    parts.path = base_path_ + "/" + url_encoded(bucket_) + (call.key.empty() ? "" : "/");
  }
  parts.path += url_encoded(call.key, "/");
  parts.payload_sha256 = call.body.empty() ? kEmptySha256 : checksum_of(call.body, Checksum::Kind::sha256);
  HttpRequest& request = result.request = limited_request(limits_, call.abandoned);
  if (!result.credentials.access_key.empty()) {
    const std::string date = amazon_date();
    parts.headers["x-amz-date"] = date;
    parts.headers["x-amz-content-sha256"] = parts.payload_sha256;
    if (!result.credentials.session_token.empty())
      parts.headers["x-amz-security-token"] = result.credentials.session_token;
    request.headers.push_back("Authorization: " + s3_authorization(parts, result.credentials, result.region, date));
  }
  for (const auto& [name, value] : parts.headers) request.headers.push_back(name + ": " + value);
  if (!call.body.empty() && !parts.headers.contains("content-type"))
    request.headers.emplace_back("Content-Type: application/octet-stream");
  const std::string query = s3_query(call.query);
  request.method = call.method;
  request.url = scheme_ + "://" + parts.host + parts.path + (query.empty() ? "" : "?" + query);
  request.body = call.body;
  request.new_connection = call.sent_once;
  request.timeout = std::max(request.timeout, call.patience);
  request.ca_file = settings_.ca_file;
  request.max_answer = uint64_t{64} << 20;
  return result;
}

std::string S3Client::code_of(const HttpAnswer& answer) {
  return error_in(answer).text_of("Code");
}

std::string S3Client::fix() const {
  return host_.empty() ? "Check the network and AWS_REGION (" + settings_.region +
                             "), or name a different server in "
                             "AWS_ENDPOINT_URL_S3."
                       : "Check the network and AWS_ENDPOINT_URL_S3 (" + scheme_ + "://" + host_ + base_path_ + ").";
}

Attempt S3Client::failed(const Signed& call, const HttpAnswer& answer, const std::string& permission,
                         uint64_t received) {
  if (answer.failure != HttpFailure::none) return failed_attempt(answer, received);
  const XmlElement error = error_in(answer);
  const std::string code = error.text_of("Code");
  std::string message = cut_text(error.text_of("Message"), 300);
  while (message.ends_with('.')) message.pop_back();
  const std::string description = code.empty() ? "" : cut_text(code) + (message.empty() ? "" : ": " + message);
  Attempt outcome = failed_attempt(answer, received, description);
  if (code == "SlowDown" || code == "RequestTimeout" || code == "InternalError" || code == "OperationAborted" ||
      code == "ConditionalRequestConflict")
    outcome.is_passing = true;

  std::string region = answer.header("x-amz-bucket-region");
  if (region.empty()) region = error.text_of("Region");
  if (!region.empty() && region != call.region &&
      (answer.status == 301 || answer.status == 307 || answer.status == 400 || answer.status == 403)) {
    const std::lock_guard lock(mutex_);
    region_ = region;
    outcome.is_passing = outcome.at_once = true;
    return outcome;
  }
  const bool is_refused = answer.status == 400 || answer.status == 401 || answer.status == 403;
  if (is_refused && !call.credentials.access_key.empty() && renew_credentials(call.credentials)) {
    outcome.is_passing = outcome.at_once = true;
    return outcome;
  }
  if (code == "NoSuchBucket") {
    outcome.fix = "Check the bucket's name and " +
                  std::string(host_.empty() ? "AWS_REGION." : "AWS_ENDPOINT_URL_S3 (" + scheme_ + "://" + host_ + ").");
  } else if (code == "RequestTimeTooSkewed") {
    outcome.fix = "Set this machine's clock: the server compares it with its own.";
  } else if (is_refused && call.credentials.access_key.empty()) {
    outcome.fix =
        "The request was not signed, because no credentials were found. Set AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a profile in ~/.aws/credentials.";
  } else if (code == "ExpiredToken" || code == "TokenRefreshRequired") {
    outcome.fix = "The credentials from " + call.credentials.source + " have expired: renew them.";
  } else if (code == "InvalidAccessKeyId" || code == "SignatureDoesNotMatch" || code == "InvalidToken") {
    outcome.fix = "Check the key, the secret and the token from " + call.credentials.source + ".";
  } else if (is_refused) {
    outcome.fix =
        "The credentials came from " + call.credentials.source + "; they need the permission " + permission + ".";
  } else if (answer.status == 404) {
    outcome.fix = "Check the name: keys differ in every character, and in case.";
  }
  return outcome;
}

HttpAnswer S3Client::send(const S3Call& call, const std::string& action, const std::string& permission,
                          const std::function<bool(const HttpAnswer&, int64_t attempt)>& accept) {
  HttpAnswer answer;
  int64_t attempt = 0;
  repeat_attempts(limits_, action, fix(), call.abandoned, [&]() -> Attempt {
    const Signed ready = sign(call);
    answer = http_request(ready.request);
    ++attempt;
    const bool is_taken =
        answer.failure == HttpFailure::none && (accept ? accept(answer, attempt) : answer.is_success());
    return is_taken ? Attempt{} : failed(ready, answer, permission);
  });
  return answer;
}

}  // namespace levin
