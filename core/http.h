// One HTTP request to a server's API: no retries, no cookies, no redirects.
//
// Note [Redirects and credentials]
// A redirect is an answer like any other (status 3xx, `location` is where it points): a client that followed it would
// send credentials, or values, to a host that nobody named.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/duration.h"

namespace levin {

struct HttpRequest {
  std::string method = "GET";
  std::string url = "";                      // http or https; user and password belong into the members below
  std::vector<std::string> headers = {};     // "Content-Type: application/json"
  std::string body = "";                     // sent unless the method is GET
  std::string body_file = "";                // sends the contents of this file instead
  std::string user = "";                     // Basic authentication where it is set …
  std::string password = "";                 //
  std::string token = "";                    // … or Bearer
  Seconds connect_timeout = Seconds(10);     //
  Seconds timeout = Seconds(30);             // of the whole request; with body_file: without a byte in either direction
  uint64_t max_answer = uint64_t{16} << 20;  // bytes; a larger answer is a problem
  std::function<bool()> cancelled = {};      // asked several times a second; true ends the request
};

struct HttpAnswer {
  long status = 0;                       // 0: there was no answer
  std::string body = "";                 //
  std::string location = "";             // of a redirect
  std::optional<Seconds> retry_after{};  // the server's wish, where it is a number of seconds
  std::string problem = "";              // why there is no answer: "Connection refused"

  [[nodiscard]] bool is_success() const { return status >= 200 && status < 300; }
  /// Whether the same request may succeed later: no answer, 408, 429, 5xx.
  [[nodiscard]] bool is_passing() const { return status == 0 || status == 408 || status == 429 || status >= 500; }
};

/// Thread-safe. Never throws for what the network or the server does; throws Error if libcurl cannot be set up or
/// body_file cannot be read.
[[nodiscard]] HttpAnswer http_request(const HttpRequest& request);

/// `text` as a part of a URL: what is not a letter, a digit or one of -._~ becomes %XX. `keep`: further characters that
/// stay.
[[nodiscard]] std::string url_encoded(const std::string& text, const std::string& keep = "");

/// A URL without the user and password that may be in it: "http://user:secret@host/a" becomes "http://host/a".
struct SplitUrl {
  std::string url = "";
  std::string user = "";
  std::string password = "";
};
[[nodiscard]] SplitUrl split_credentials(const std::string& url);

/// Scheme, host and port of a URL, as libcurl reads it: "https://host:443"; "" if it is no URL. Two URLs with the same
/// origin lead to the same server.
[[nodiscard]] std::string url_origin(const std::string& url);

}  // namespace levin
