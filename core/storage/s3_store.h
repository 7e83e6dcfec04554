// Objects in a bucket of S3, or of a server with its protocol (MinIO, Ceph, R2, …).
#pragma once

#include <memory>
#include <string>

#include "levin/core/process/this_process.h"
#include "levin/core/storage/object_store.h"

namespace levin {

/// `url` is "s3://bucket/prefix". Throws ConfigError if it is not, or if the settings are incomplete.
[[nodiscard]] std::shared_ptr<ObjectStore> open_s3_store(const std::string& url, const FetchLimits& limits = {},
                                                         const Variables& variables = process_variables());

}  // namespace levin
