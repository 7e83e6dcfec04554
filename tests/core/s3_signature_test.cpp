#include "levin/core/storage/s3_signature.h"

#include <gtest/gtest.h>

#include "levin/core/files/checksum.h"

namespace levin::s3_signature_test {
namespace {

// The examples of Amazon's page "Authenticating Requests: Using the Authorization Header".
constexpr const char* kEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string signature_of(S3Request request) {
  const S3Credentials credentials{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "", ""};
  request.host = "examplebucket.s3.amazonaws.com";
  request.headers["x-amz-date"] = "20130524T000000Z";
  if (request.payload_sha256.empty()) request.payload_sha256 = kEmpty;
  request.headers["x-amz-content-sha256"] = request.payload_sha256;
  const std::string text = s3_authorization(request, credentials, "us-east-1", "20130524T000000Z");
  EXPECT_TRUE(
      text.starts_with("AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
                       "SignedHeaders="))
      << text;
  return text.substr(text.rfind('=') + 1);
}

TEST(S3Signature, SignsAmazonsExamples) {
  S3Request get;
  get.path = "/test.txt";
  get.headers["range"] = "bytes=0-9";
  EXPECT_EQ(signature_of(get), "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  S3Request put;
  put.method = "PUT";
  put.path = "/test%24file.text";
  put.headers = {{"date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
  put.payload_sha256 = checksum_of("Welcome to Amazon S3.", Checksum::Kind::sha256);
  EXPECT_EQ(signature_of(put), "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  S3Request lifecycle;
  lifecycle.query = {{"lifecycle", ""}};
  EXPECT_EQ(signature_of(lifecycle), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  S3Request list;
  list.query = {{"max-keys", "2"}, {"prefix", "J"}};
  EXPECT_EQ(signature_of(list), "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(S3Signature, SortsAQueryByItsEncodedNames) {
  EXPECT_EQ(s3_query({{"uploadId", "a+b/c="}, {"partNumber", "1"}, {"a b", "\xC3\xA9"}}),
            "a%20b=%C3%A9&partNumber=1&uploadId=a%2Bb%2Fc%3D");
  EXPECT_EQ(s3_query({{"uploads", ""}}), "uploads=");
}

}  // namespace
}  // namespace levin::s3_signature_test
