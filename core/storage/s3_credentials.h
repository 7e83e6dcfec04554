// With what the requests to a bucket are signed: from the variables and files of the AWS command line tools.
#pragma once

#include "levin/core/process/this_process.h"
#include "levin/core/storage/object_store.h"
#include "levin/core/storage/s3_signature.h"

namespace levin {

/// Reads the credentials, as object_store.h describes; none are no error. Throws ConfigError if only a part is set, and
/// StorageError if a container's server does not give them.
[[nodiscard]] S3Credentials s3_credentials(const Variables& variables, const FetchLimits& limits);

}  // namespace levin
