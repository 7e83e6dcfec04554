#include "levin/core/storage/s3_signature.h"

#include "levin/core/files/checksum.h"
#include "levin/core/files/http.h"
#include "levin/core/files/url_text.h"

namespace levin {

std::string s3_query(const std::map<std::string, std::string>& query) {
  std::map<std::string, std::string> encoded;  // sorted by the encoded name
  for (const auto& [name, value] : query) encoded[url_encoded(name)] = url_encoded(value);
  std::string text;
  for (const auto& [name, value] : encoded) text += (text.empty() ? "" : "&") + name + "=" + value;
  return text;
}

std::string s3_authorization(const S3Request& request, const S3Credentials& credentials, const std::string& region,
                             const std::string& date) {
  std::map<std::string, std::string> headers = request.headers;
  headers["host"] = request.host;
  std::string lines;
  std::string names;
  for (const auto& [name, value] : headers) {
    lines += name + ":" + value + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical = request.method + "\n" + request.path + "\n" + s3_query(request.query) + "\n" + lines +
                                "\n" + names + "\n" + request.payload_sha256;
  const std::string day = date.substr(0, 8);
  const std::string scope = day + "/" + region + "/s3/aws4_request";
  const std::string to_sign =
      "AWS4-HMAC-SHA256\n" + date + "\n" + scope + "\n" + checksum_of(canonical, Checksum::Kind::sha256);
  std::string key = "AWS4" + credentials.secret_key;
  for (const std::string& part : {day, region, std::string("s3"), std::string("aws4_request")}) {
    key = hmac_sha256(key, part);
  }
  return "AWS4-HMAC-SHA256 Credential=" + credentials.access_key + "/" + scope + ",SignedHeaders=" + names +
         ",Signature=" + hex_text(hmac_sha256(key, to_sign));
}

}  // namespace levin
