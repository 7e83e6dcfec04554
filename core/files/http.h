// One HTTP request, to a server's API or for a file: no retries and no cookies. core/storage/ repeats requests.
//
// Note [Redirects and credentials]
// Unless a request permits redirects, a redirect is an answer like any other (status 3xx; `location` is its target): a
// client that followed it would send credentials or values to a host that nobody named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/core/options/units.h"

namespace levin {

struct HttpAnswer;

/// Receives a successful answer's body piece by piece; `answer` holds the status and the headers. Returns false to end
/// the request.
using HttpReceiver = std::function<bool(std::span<const std::byte> piece, const HttpAnswer& answer)>;

/// A request and its limits: times, size of the answer, redirects.
struct HttpRequest {
  std::string method = "GET";
  std::string url = "";                   // http or https; user and password belong in the members below
  std::vector<std::string> headers = {};  // "Content-Type: application/json"
  std::string body = "";                  // sent unless the method is GET
  std::string body_file = "";             // the contents of this file are sent instead
  std::string user = "";                  // for Basic authentication
  std::string password = "";              //
  std::string token = "";                 // for Bearer authentication; replaces user and password
  Seconds connect_timeout = Seconds(10);  //
  Seconds timeout = Seconds(30);          // of the whole request; of a stall if a file is sent or a receiver is set
  uint64_t min_speed = 0;       // bytes per second; if set, a transfer that is slower for `timeout` is a stall
  bool new_connection = false;  // as a POST has: libcurl repeats others if a kept one turns out closed
  std::string ca_file = "";     // certificates to trust instead of the system's
  uint64_t max_answer = uint64_t{16} << 20;  // bytes; a larger answer is a problem
  long max_redirects = 0;                    // not for requests with credentials
  HttpReceiver receiver = {};                // gets the body of a successful answer instead of HttpAnswer::body, which
                                             // then has at most 64 KiB of the body of any other answer
  std::function<bool()> cancelled = {};      // asked several times a second; true ends the request
};

/// The reason for a missing answer.
enum class HttpFailure {
  none,
  network,   // the connection; the same request may succeed later
  too_long,  // more than max_answer bytes
  receiver,  // the receiver returned false
  other,     // cancelled, or a URL that cannot be used
};

/// The outcome of a request: the server's answer, or the reason why there is none.
struct HttpAnswer {
  long status = 0;                                                // 0: no answer
  std::string body = "";                                          //
  std::string location = "";                                      // of a redirect
  std::vector<std::pair<std::string, std::string>> headers = {};  // names in lower case
  std::optional<uint64_t> content_length{};                       // of the body, if the server has announced it
  std::optional<Seconds> retry_after{};                           // the server's wish, where it is a number of seconds
  std::string problem = "";  // the reason for a missing answer: "Connection refused"
  HttpFailure failure = HttpFailure::none;

  /// Returns the value of a header; "" if it is missing. `name` is in lower case.
  [[nodiscard]] std::string header(std::string_view name) const;
  [[nodiscard]] bool is_success() const { return status >= 200 && status < 300; }
  /// Returns whether the same request may succeed later: no answer, 408, 429, 5xx.
  [[nodiscard]] bool is_passing() const { return status == 0 || status == 408 || status == 429 || status >= 500; }
};

/// Sends the request and waits for the answer. Connections are kept open for later requests to the same server, from
/// any thread. Thread-safe. Never throws because of the network or the server; throws
/// Error if libcurl cannot be set up or body_file cannot be read.
[[nodiscard]] HttpAnswer http_request(const HttpRequest& request);

/// A URL without the user and password that may be in it ("http://user:secret@host/a" becomes "http://host/a"), and
/// these two, decoded.
struct SplitUrl {
  std::string url = "";
  std::string user = "";
  std::string password = "";
};
[[nodiscard]] SplitUrl split_credentials(const std::string& url);

/// Returns scheme, host and port of a URL as libcurl reads it: "https://host:443"; "" for an invalid URL. Two URLs with
/// the same origin lead to the same server.
[[nodiscard]] std::string url_origin(const std::string& url);

}  // namespace levin
