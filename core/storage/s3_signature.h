// AWS Signature Version 4 of requests to S3, as its documentation defines it. libcurl's CURLOPT_AWS_SIGV4 is not used:
// before 8.9 it signs keys with "=" and other special characters, and unsorted queries, wrongly (curl's issues 11794
// and 13754), and Debian 12 has 7.88.
#pragma once

#include <map>
#include <string>

namespace levin {

/// What a request is signed with.
struct S3Credentials {
  std::string access_key = "";  // "": requests are not signed
  std::string secret_key = "";
  std::string session_token = "";
  std::string source = "";  // for messages: "AWS_ACCESS_KEY_ID", "profile default of /home/me/.aws/credentials"
};

/// The parts of a request that are signed.
struct S3Request {
  std::string method = "GET";
  std::string host = "";                            // with a port other than the scheme's
  std::string path = "/";                           // encoded
  std::map<std::string, std::string> query = {};    // not encoded
  std::map<std::string, std::string> headers = {};  // names in lower case; all but host
  std::string payload_sha256 = "";                  // in hex
};

/// Returns the query of a URL, without "?": encoded, and sorted as the signature needs it.
[[nodiscard]] std::string s3_query(const std::map<std::string, std::string>& query);

/// Returns the value of the header Authorization. `date` is the header x-amz-date: "20130524T000000Z".
[[nodiscard]] std::string s3_authorization(const S3Request& request, const S3Credentials& credentials,
                                           const std::string& region, const std::string& date);

}  // namespace levin
