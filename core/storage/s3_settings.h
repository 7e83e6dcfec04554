// Where a bucket is and with what its requests are signed: from the variables and files of the AWS command line tools.
#pragma once

#include <string>

#include "levin/core/process/this_process.h"
#include "levin/core/storage/object_store.h"
#include "levin/core/storage/s3_signature.h"

namespace levin {

/// What the environment says about S3.
struct S3Settings {
  std::string region = "us-east-1";
  std::string endpoint = "";  // "http://127.0.0.1:9000"; "": AWS
  std::string ca_file = "";
};

/// Reads AWS_REGION, AWS_ENDPOINT_URL_S3 and the others, and the profile in ~/.aws/config. Throws ConfigError for a
/// profile that is in neither file.
[[nodiscard]] S3Settings s3_settings(const Variables& variables);

/// Reads the credentials, as object_store.h describes; none are no error. Throws ConfigError if only a part is set, and
/// StorageError if a container's server does not give them.
[[nodiscard]] S3Credentials s3_credentials(const Variables& variables, const FetchLimits& limits);

}  // namespace levin
