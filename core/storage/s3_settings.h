// Where a bucket is, from the variables and files of the AWS command line tools.
#pragma once

#include <map>
#include <string>

#include "levin/core/process/this_process.h"

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

/// The profile AWS_PROFILE, or "default".
struct S3Profile {
  std::string name = "";
  std::string credentials_path = "";                                 // of the file
  std::map<std::string, std::string> credentials = {}, config = {};  // its section in each of the two files
};

/// Throws ConfigError for a profile that is in neither file.
[[nodiscard]] S3Profile s3_profile(const Variables& variables);

}  // namespace levin
