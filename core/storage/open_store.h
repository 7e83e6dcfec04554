// Files where they lie: in a folder, on a web server, or in a bucket of S3 or a server that speaks its protocol.
//
//   auto store = open_store("s3://bucket/datasets/pile");          // file:///data, /data, https://host/data too
//   for (const StoredObject& object : store->list("train/")) …     // keys are relative to the URL
//   store->fetch("train/00042.mds.zst", "/tmp/cache/00042.mds.zst");
//
// Credentials of S3, where the first of these that exists counts: AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY and
// AWS_SESSION_TOKEN; the profile AWS_PROFILE (or "default") in ~/.aws/credentials (AWS_SHARED_CREDENTIALS_FILE) and
// ~/.aws/config (AWS_CONFIG_FILE); a container's credentials (AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI).
// Without any, requests are not signed, as for public buckets. AWS_REGION (AWS_DEFAULT_REGION) names the region, and
// AWS_ENDPOINT_URL_S3 (AWS_ENDPOINT_URL) a server such as MinIO. AWS_CA_BUNDLE names certificates to trust.
#pragma once

#include <memory>
#include <string>

#include "levin/core/storage/object_store.h"

namespace levin {

/// Opens the store at a URL: a folder ("/data", "file:///data", "data"), "https://host/path" or "s3://bucket/prefix".
/// Does not contact the server. Throws ConfigError for a URL that no store knows, or if this Levin lacks the part
/// levin_downloads, which holds the clients.
[[nodiscard]] std::shared_ptr<ObjectStore> open_store(const std::string& url, const FetchLimits& limits = {});

/// Returns true for URLs that open_store() reads over a network: "s3://bucket/a", "https://host/a".
[[nodiscard]] bool is_remote(const std::string& path);

}  // namespace levin
