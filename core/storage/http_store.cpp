#include "levin/core/storage/http_store.h"

#include <algorithm>
#include <utility>

#include "levin/core/files/http.h"
#include "levin/core/files/url_text.h"
#include "levin/core/process/this_process.h"
#include "levin/core/storage/transfer.h"

namespace levin {

namespace {

class HttpStore : public ObjectStore {
 public:
  HttpStore(const std::string& url, FetchLimits limits) : limits_(std::move(limits)) {
    SplitUrl split = split_credentials(url);
    user_ = std::move(split.user);
    password_ = std::move(split.password);
    const size_t end = std::min(split.url.find_first_of("?#"), split.url.size());
    base_ = split.url.substr(0, end);
    if (!base_.ends_with('/')) base_ += '/';
    query_ = split.url.substr(end, split.url.find('#', end) - end);
    ca_file_ = process_variables()("CURL_CA_BUNDLE").value_or("");
  }

  [[nodiscard]] std::string url(const std::string& key) const override { return base_ + url_encoded(key, "/"); }

  [[nodiscard]] std::optional<StoredObject> find(const std::string& key) const override {
    std::optional<StoredObject> found;
    repeat_attempts(limits_, "read " + url(key), kFix, nullptr, [&]() -> Attempt {
      HttpRequest request = request_for(key, nullptr);
      request.method = "HEAD";
      HttpAnswer answer = http_request(request);
      if (answer.status == 405 || answer.status == 501) {  // a server without HEAD
        request.method = "GET";
        request.headers = {"Range: bytes=0-0"};
        std::optional<HttpAnswer> begun;
        request.receiver = [&](auto, const HttpAnswer& so_far) {
          begun = so_far;
          return so_far.status == 206;  // otherwise the whole object comes
        };
        answer = http_request(request);
        if (begun) answer = *begun;
      }
      if (answer.failure == HttpFailure::none && (answer.status == 404 || answer.status == 410)) return {};
      if (answer.failure != HttpFailure::none || !answer.is_success()) return failed_attempt(answer);
      found = StoredObject{key, answer.content_length.value_or(0), strong_etag(answer)};
      if (const std::string range = answer.header("content-range"); range.rfind('/') != std::string::npos) {
        found->size = std::strtoull(range.c_str() + range.rfind('/') + 1, nullptr, 10);
      }
      return {};
    });
    return found;
  }

  [[nodiscard]] std::vector<StoredObject> list(const std::string& /*prefix*/) const override {
    throw StorageError("cannot list " + url("") +
                       ": a web server has no listing of its files. Name the files in an index.json there, or by a "
                       "pattern such as \"train-{000..099}.tar\"; or use the bucket's s3:// URL.");
  }

  [[nodiscard]] std::string read(const std::string& key, uint64_t offset,
                                 std::optional<uint64_t> length) const override {
    return read_range({"read " + url(key), kFix, offset, length,
                       [&](const std::string& range) {
                         HttpRequest request = request_for(key, nullptr);
                         if (!range.empty()) request.headers.push_back("Range: " + range);
                         return request;
                       },
                       [](const HttpAnswer& answer, uint64_t received) { return failed_attempt(answer, received); }},
                      limits_);
  }

  void fetch(const std::string& key, const std::string& path, const std::atomic<bool>* abandoned) const override {
    ObjectTransfer transfer;
    transfer.action = "fetch " + url(key) + " to " + path;
    transfer.fix = kFix;
    transfer.path = path;
    transfer.abandoned = abandoned;
    transfer.request = [&](uint64_t offset, const std::string& validator) {
      HttpRequest request = request_for(key, abandoned);
      if (offset > 0) {
        request.headers = {"Range: bytes=" + std::to_string(offset) + "-", "If-Range: " + validator};
      }
      return request;
    };
    transfer.failed = [](const HttpAnswer& answer, uint64_t received) { return failed_attempt(answer, received); };
    fetch_object(transfer, limits_);
  }

  void put(const std::string& key, std::string_view /*bytes*/) override { refuse_write(key); }
  [[nodiscard]] bool put_if_absent(const std::string& key, std::string_view /*bytes*/) override { refuse_write(key); }
  void put_file(const std::string& key, const std::string& /*path*/, const std::atomic<bool>* /*abandoned*/) override {
    refuse_write(key);
  }
  void remove(const std::string& key) override { refuse_write(key); }

 private:
  static constexpr const char* kFix =
      "Check the URL, the network, and that the server gives this file to you: curl -I shows its answer.";

  [[nodiscard]] HttpRequest request_for(const std::string& key, const std::atomic<bool>* abandoned) const {
    if (!is_path(key)) {
      throw StorageError("the key \"" + cut_text(key) + "\" does not name a file below " + url("") +
                         ". A key is a relative path without \"..\", such as \"train/00001.mds\".");
    }
    HttpRequest request = limited_request(limits_, abandoned);
    request.url = url(key) + query_;
    request.user = user_;
    request.password = password_;
    request.ca_file = ca_file_;
    request.max_redirects = user_.empty() && password_.empty() ? 10 : 0;
    return request;
  }

  static bool is_path(const std::string& key) {
    return !key.empty() && key.front() != '/' && ("/" + key + "/").find("/../") == std::string::npos &&
           key.find('\0') == std::string::npos;
  }

  [[noreturn]] void refuse_write(const std::string& key) const {
    throw StorageError("cannot write " + url(key) +
                       ": a web server's files can only be read. Write to a folder or to an s3:// URL.");
  }

  FetchLimits limits_;
  std::string base_;   // ends with "/"
  std::string query_;  // "" or "?…"
  std::string user_;
  std::string password_;
  std::string ca_file_;
};

}  // namespace

std::shared_ptr<ObjectStore> open_http_store(const std::string& url, const FetchLimits& limits) {
  return std::make_shared<HttpStore>(url, limits);
}

}  // namespace levin
