#include "levin/core/storage/open_store.h"

#include <algorithm>
#include <array>
#include <utility>

#include "levin/core/process/parts.h"
#include "levin/core/process/shared_library.h"
#include "levin/core/storage/folder_store.h"

namespace levin {

namespace {

constexpr std::array kRemoteSchemes{"s3", "https", "http"};

// "s3" of "s3://bucket"; "" for a path.
std::string scheme_of(const std::string& url) {
  const size_t end = url.find("://");
  if (end == std::string::npos) return "";
  const std::string scheme = url.substr(0, end);
  const bool is_scheme =
      !scheme.empty() && scheme.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789+.-") == std::string::npos;
  return is_scheme ? scheme : "";
}

}  // namespace

bool is_remote(const std::string& path) {
  const std::string scheme = scheme_of(path);
  return std::find(kRemoteSchemes.begin(), kRemoteSchemes.end(), scheme) != kRemoteSchemes.end();
}

std::shared_ptr<ObjectStore> open_store(const std::string& url, const FetchLimits& limits) {
  const std::string scheme = scheme_of(url);
  if (scheme.empty()) {
    if (url.empty()) throw ConfigError("a store needs a URL: a folder, s3://bucket/prefix or https://host/path.");
    return std::make_shared<FolderStore>(url, limits);
  }
  if (scheme == "file") {
    const std::string path = url.substr(7);
    if (!path.starts_with('/')) {
      throw ConfigError("\"" + cut_text(url) +
                        "\" does not name a folder of this machine. Write file:///folder, with three slashes.");
    }
    return std::make_shared<FolderStore>(path, limits);
  }
  if (!is_remote(url)) {
    throw ConfigError("\"" + cut_text(scheme) +
                      "://\" is not a store that Levin reads. Known: a folder, file://, s3://, https://, http://." +
                      std::string(scheme == "gs"
                                      ? " Google Cloud Storage speaks S3's protocol too: write s3://bucket/prefix "
                                        "and set AWS_ENDPOINT_URL_S3=https://storage.googleapis.com."
                                      : ""));
  }
  void (*open)(const std::string& url, const FetchLimits& limits, std::shared_ptr<ObjectStore>& store) = nullptr;
  open_part("downloads", "the client for " + scheme + "://").find(open, "levin_open_remote_store");
  std::shared_ptr<ObjectStore> store;
  open(url, limits, store);
  return store;
}

}  // namespace levin
