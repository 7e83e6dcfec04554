// Requests that are repeated, and objects that arrive in a file: what the clients of web servers and of S3 share.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "levin/core/files/checksum.h"
#include "levin/core/files/http.h"
#include "levin/core/storage/object_store.h"

namespace levin {

/// How one attempt has ended: by success, or for a cause.
struct Attempt {
  std::string cause = "";     // "": success
  bool is_passing = false;    // another attempt may succeed
  bool has_progress = false;  // a part of the work is done and stays done: counting starts anew
  bool at_once = false;       // … without a pause
  std::string fix = "";       // replaces the caller's advice
  std::optional<Seconds> retry_after{};
};

/// Repeats `attempt` until it succeeds, with pauses that double and are partly random, so that many readers do not
/// return to a busy server at once. Throws StorageError "cannot ACTION: CAUSE (attempt N of M). FIX" otherwise, and if
/// `abandoned` becomes true.
void repeat_attempts(const FetchLimits& limits, const std::string& action, const std::string& fix,
                     const std::atomic<bool>* abandoned, const std::function<Attempt()>& attempt);

/// Returns a request with the times of `limits`.
[[nodiscard]] HttpRequest limited_request(const FetchLimits& limits, const std::atomic<bool>* abandoned);

/// Returns the outcome of a request that has no answer or an unsuccessful one. `describe` gives the server's words for
/// an unsuccessful one; "" if there are none.
[[nodiscard]] Attempt failed_attempt(const HttpAnswer& answer, uint64_t received_bytes = 0,
                                     const std::string& description = "");

/// Returns an etag without quotes; "" for a weak one, which does not tell whether the bytes are the same.
[[nodiscard]] std::string strong_etag(const HttpAnswer& answer);

/// Returns the checksum of the whole object that the answer's headers give; without `hex` if there is none.
/// `etag_is_md5`: the server's etags are MD5 sums, as S3's are unless the object was encrypted or came in parts.
[[nodiscard]] Checksum announced_checksum(const HttpAnswer& answer, bool etag_is_md5);

/// Bytes that one object's file receives.
struct ObjectTransfer {
  std::string action = "";  // "fetch s3://bucket/a to /tmp/a"
  std::string fix = "";     // "Check the network."
  std::string path = "";    // of the new file
  Checksum checksum = {};   // expected by the caller, besides the server's
  bool etag_is_md5 = false;
  uint64_t max_bytes = uint64_t{1} << 50;
  const std::atomic<bool>* abandoned = nullptr;
  /// Returns the request for the bytes from `offset` on; of the version that `validator` (an etag in quotes or a
  /// date) names, if offset > 0.
  std::function<HttpRequest(uint64_t offset, const std::string& validator)> request = {};
  /// Returns the outcome of an unsuccessful answer.
  std::function<Attempt(const HttpAnswer& answer, uint64_t received)> failed = {};
  std::function<void(uint64_t received, std::optional<uint64_t> total)> progress = {};  // empty: none
};

/// Fetches the object into `path`. Throws StorageError; an old file at `path` is then untouched.
void fetch_object(const ObjectTransfer& transfer, const FetchLimits& limits);

/// Returns the bytes from `offset` on that a server's answer to limited_request() with "Range" holds, at most `length`.
/// `failed` as above.
struct RangeRead {
  std::string action = "";
  std::string fix = "";
  uint64_t offset = 0;
  std::optional<uint64_t> length{};
  std::function<HttpRequest(const std::string& range)> request = {};  // "bytes=0-9"; "" for the whole
  std::function<Attempt(const HttpAnswer& answer, uint64_t received)> failed = {};
};
[[nodiscard]] std::string read_range(const RangeRead& range, const FetchLimits& limits);

}  // namespace levin
