// Signed requests to one bucket, and what its answers mean.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "levin/core/storage/s3_credentials.h"
#include "levin/core/storage/s3_settings.h"
#include "levin/core/storage/transfer.h"

namespace levin {

/// A request to a bucket. The credentials it was signed with are kept for reading its answer.
struct S3Call {
  std::string method = "GET";
  std::string key = "";  // "": the bucket itself
  std::map<std::string, std::string> query = {};
  std::map<std::string, std::string> headers = {};  // names in lower case
  std::string body = "";
  bool sent_once = false;         // by each attempt: see HttpRequest::new_connection
  Seconds patience = Seconds(0);  // for an answer that takes the server longer than a stall may
  const std::atomic<bool>* abandoned = nullptr;
};

/// Thread-safe.
class S3Client {
 public:
  /// Throws ConfigError for an endpoint that is not a URL, and for incomplete settings.
  S3Client(std::string bucket, Variables variables, FetchLimits limits);

  /// A request that is ready to be sent.
  struct Signed {
    HttpRequest request;
    S3Credentials credentials;
    std::string region;
  };
  [[nodiscard]] Signed sign(const S3Call& call);

  /// Returns the outcome of an answer that is not a success. `action` is what the permission is needed for:
  /// "s3:GetObject". Corrects the region if the server has named another, and reads the credentials again if they may
  /// have been renewed; the call is then worth repeating at once.
  [[nodiscard]] Attempt failed(const Signed& call, const HttpAnswer& answer, const std::string& permission,
                               uint64_t received = 0);

  /// Sends the call, repeating it, until `accept` takes the answer of the n-th attempt (by default, if it is a
  /// success). Throws StorageError.
  HttpAnswer send(const S3Call& call, const std::string& action, const std::string& permission,
                  const std::function<bool(const HttpAnswer&, int64_t attempt)>& accept = {});

  /// Returns the code in an answer: "NoSuchKey"; "" if it has none.
  [[nodiscard]] static std::string code_of(const HttpAnswer& answer);

  /// Returns the advice for failures that have no better one.
  [[nodiscard]] std::string fix() const;

  [[nodiscard]] const FetchLimits& limits() const { return limits_; }

 private:
  [[nodiscard]] S3Credentials credentials();
  bool renew_credentials(const S3Credentials& used);

  std::string bucket_;
  Variables variables_;
  FetchLimits limits_;
  S3Settings settings_;
  std::string scheme_ = "https";
  std::string host_;       // of the endpoint; "" for AWS, whose host depends on the region
  std::string base_path_;  // of the endpoint: "" or "/storage"
  std::mutex mutex_;       // protects what follows
  std::string region_;
  std::optional<S3Credentials> credentials_;
};

}  // namespace levin
