#include "levin/core/files/http.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <memory>
#include <mutex>

#include "levin/core/files/files.h"
#include "levin/core/files/url_text.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

using CurlList = std::unique_ptr<curl_slist, void (*)(curl_slist*)>;
using OpenFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

std::string in_lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

constexpr size_t kMaxErrorBody = 64 << 10;  // kept of the body of an error

struct Received {
  CURL* handle;
  const HttpRequest& request;
  HttpAnswer& answer;
  uint64_t bytes = 0;
};

size_t take_header(char* data, size_t /*one*/, size_t size, void* user) {
  HttpAnswer& answer = static_cast<Received*>(user)->answer;
  const std::string_view line(data, size);
  if (line.starts_with("HTTP/")) {  // after a redirect or "100 Continue" another answer begins
    answer.headers.clear();
  } else if (const size_t colon = line.find(':'); colon != std::string_view::npos && answer.headers.size() < 1000) {
    std::string value(line.substr(colon + 1));
    while (!value.empty() && (value.back() == '\r' || value.back() == '\n')) value.pop_back();
    answer.headers.emplace_back(in_lower_case(std::string(line.substr(0, colon))), trimmed(value));
  }
  return size;
}

void read_start(CURL* handle, HttpAnswer& answer) {
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &answer.status);
  curl_off_t total = -1;
  curl_easy_getinfo(handle, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &total);
  if (total >= 0) answer.content_length = static_cast<uint64_t>(total);
}

size_t take_body(char* data, size_t /*one*/, size_t size, void* user) {
  auto& [handle, request, answer, bytes] = *static_cast<Received*>(user);
  if (bytes == 0) read_start(handle, answer);
  bytes += size;
  if (request.receiver && !answer.is_success()) {
    answer.body.append(data, std::min(size, kMaxErrorBody - std::min(answer.body.size(), kMaxErrorBody)));
    return size;
  }
  if (bytes > request.max_answer) {
    answer.failure = HttpFailure::too_long;
    return CURL_WRITEFUNC_ERROR;
  }
  if (!request.receiver) {
    answer.body.append(data, size);
    return size;
  }
  if (request.receiver(std::as_bytes(std::span(data, size)), answer)) return size;
  answer.failure = HttpFailure::receiver;
  return CURL_WRITEFUNC_ERROR;
}

size_t give_file(char* data, size_t one, size_t count, void* user) {
  auto* file = static_cast<std::FILE*>(user);
  const size_t got = std::fread(data, 1, one * count, file);
  return std::ferror(file) != 0 ? CURL_READFUNC_ABORT : got;
}

int seek_file(void* user, curl_off_t offset, int from) {  // a kept connection may turn out to be closed
  return std::fseek(static_cast<std::FILE*>(user), static_cast<long>(offset), from) == 0 ? CURL_SEEKFUNC_OK
                                                                                         : CURL_SEEKFUNC_FAIL;
}

int progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& cancelled = *static_cast<const std::function<bool()>*>(user);
  return cancelled && cancelled() ? 1 : 0;
}

CURL* make_handle() {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  CURL* handle = ready == CURLE_OK ? curl_easy_init() : nullptr;
  if (handle == nullptr) throw Error("http: libcurl cannot be set up.");
  return handle;
}

// Handles between two requests, each with its open connections: a new connection costs two round trips, with TLS three.
// Never destroyed: at exit the TLS library would be destroyed before it.
class IdleHandles {
 public:
  static IdleHandles& instance() {
    static auto* handles = new IdleHandles;
    return *handles;
  }

  // Prefers the handle that was used last for this server.
  CURL* take(const std::string& origin) {
    const std::lock_guard lock(mutex_);
    if (process_ != ::getpid()) {  // a fork: the connections are the parent's, and closing them would end its sessions
      of_parent_.insert(of_parent_.end(), idle_.begin(), idle_.end());
      idle_.clear();
      process_ = ::getpid();
    }
    auto found = std::find_if(idle_.rbegin(), idle_.rend(), [&](const Idle& idle) { return idle.origin == origin; });
    if (found == idle_.rend()) {
      if (idle_.size() < kMaxIdle) return make_handle();
      found = std::prev(idle_.rend());
    }
    CURL* handle = found->handle;
    idle_.erase(std::next(found).base());
    return handle;
  }

  void give_back(const std::string& origin, CURL* handle) {
    curl_easy_reset(handle);  // keeps the connections
    const std::lock_guard lock(mutex_);
    idle_.push_back({origin, handle});
  }

 private:
  static constexpr size_t kMaxIdle = 64;  // from here on a handle of another server is taken rather than a new one
  struct Idle {
    std::string origin;
    CURL* handle;
  };

  std::mutex mutex_;
  std::vector<Idle> idle_;
  std::vector<Idle> of_parent_;
  pid_t process_ = ::getpid();
};

class PooledHandle {
 public:
  explicit PooledHandle(const std::string& url)
      : origin_(url_origin(url)), handle_(IdleHandles::instance().take(origin_)) {}
  ~PooledHandle() { IdleHandles::instance().give_back(origin_, handle_); }
  PooledHandle(const PooledHandle&) = delete;
  PooledHandle& operator=(const PooledHandle&) = delete;

  [[nodiscard]] CURL* get() const { return handle_; }

 private:
  std::string origin_;
  CURL* handle_;
};

long milliseconds(Seconds span) {
  return std::max(1L, static_cast<long>(span.count() * 1000));
}

void set_credentials(CURL* handle, const HttpRequest& request) {
  if (!request.token.empty()) {
    curl_easy_setopt(handle, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    curl_easy_setopt(handle, CURLOPT_XOAUTH2_BEARER, request.token.c_str());
  } else if (!request.user.empty() || !request.password.empty()) {
    curl_easy_setopt(handle, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
    curl_easy_setopt(handle, CURLOPT_USERNAME, request.user.c_str());
    curl_easy_setopt(handle, CURLOPT_PASSWORD, request.password.c_str());
  }
}

void set_limits(CURL* handle, const HttpRequest& request) {
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, milliseconds(request.connect_timeout));
  if (request.body_file.empty() && !request.receiver && request.min_speed == 0) {
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, milliseconds(request.timeout));
  } else {
    curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(std::max<uint64_t>(request.min_speed, 1)));
    curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, std::max(1L, milliseconds(request.timeout) / 1000));
  }
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, &progress);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, const_cast<std::function<bool()>*>(&request.cancelled));
}

OpenFile open_body(const std::string& path, CURL* handle) {
  OpenFile file(path.empty() ? nullptr : std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (path.empty()) return file;
  struct stat info {};
  if (file == nullptr || ::fstat(::fileno(file.get()), &info) != 0)
    throw Error("cannot read " + path + ": " + system_error_text(errno) + ".");
  curl_easy_setopt(handle, CURLOPT_UPLOAD, 1L);
  curl_easy_setopt(handle, CURLOPT_READFUNCTION, &give_file);
  curl_easy_setopt(handle, CURLOPT_READDATA, file.get());
  curl_easy_setopt(handle, CURLOPT_SEEKFUNCTION, &seek_file);
  curl_easy_setopt(handle, CURLOPT_SEEKDATA, file.get());
  curl_easy_setopt(handle, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(info.st_size));
  return file;
}

std::string failure(CURLcode code, const HttpRequest& request, const char* detail) {
  if (code == CURLE_ABORTED_BY_CALLBACK) return "it was cancelled";
  if (code == CURLE_WRITE_ERROR) return "the answer is longer than " + std::to_string(request.max_answer) + " bytes";
  return *detail != '\0' ? detail : curl_easy_strerror(code);
}

bool is_of_network(CURLcode code) {
  constexpr std::array codes{CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT,  CURLE_PARTIAL_FILE, CURLE_GOT_NOTHING,
                             CURLE_OPERATION_TIMEDOUT,   CURLE_SEND_ERROR,       CURLE_RECV_ERROR,   CURLE_HTTP2,
                             CURLE_HTTP2_STREAM,         CURLE_SSL_CONNECT_ERROR};
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

void read_answer(CURL* handle, HttpAnswer& answer) {
  read_start(handle, answer);
  const char* location = nullptr;
  if (curl_easy_getinfo(handle, CURLINFO_REDIRECT_URL, &location) == CURLE_OK && location != nullptr)
    answer.location = location;
  curl_off_t wait = 0;
  if (curl_easy_getinfo(handle, CURLINFO_RETRY_AFTER, &wait) == CURLE_OK && wait > 0)
    answer.retry_after = Seconds(static_cast<double>(wait));
}

}  // namespace

HttpAnswer http_request(const HttpRequest& request) {
  const PooledHandle pooled(request.url);
  CURL* handle = pooled.get();
  curl_easy_setopt(handle, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);  // "/../" is not resolved
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, request.max_redirects > 0 ? 1L : 0L);
  curl_easy_setopt(handle, CURLOPT_MAXREDIRS, request.max_redirects);
  // libcurl repeats a request that it has sent on a kept connection if no answer comes.
  curl_easy_setopt(handle, CURLOPT_FRESH_CONNECT, request.new_connection || request.method == "POST" ? 1L : 0L);
  if (!request.ca_file.empty()) curl_easy_setopt(handle, CURLOPT_CAINFO, request.ca_file.c_str());
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "levin");
  set_credentials(handle, request);
  set_limits(handle, request);
  const OpenFile file = open_body(request.body_file, handle);
  if (request.method == "HEAD") {
    curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
  } else if (request.body_file.empty() && request.method != "GET") {
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, request.body.c_str());
  }
  if (request.method != "HEAD") curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  curl_slist* lines = curl_slist_append(nullptr, "Expect:");  // no waiting for "100 Continue"
  for (const std::string& line : request.headers) lines = curl_slist_append(lines, line.c_str());
  const CurlList headers(lines, &curl_slist_free_all);
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  HttpAnswer answer;
  Received received{handle, request, answer};
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &take_body);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &received);
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, &take_header);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, &received);
  std::array<char, CURL_ERROR_SIZE> detail{};
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, detail.data());
  const CURLcode code = curl_easy_perform(handle);
  read_answer(handle, answer);
  if (code == CURLE_OK) return answer;
  answer.status = 0;
  answer.problem = failure(code, request, detail.data());
  if (answer.failure == HttpFailure::none)
    answer.failure = is_of_network(code) ? HttpFailure::network : HttpFailure::other;
  return answer;
}

std::string HttpAnswer::header(std::string_view name) const {
  const auto found = std::find_if(headers.begin(), headers.end(), [&](const auto& each) { return each.first == name; });
  return found == headers.end() ? "" : found->second;
}

SplitUrl split_credentials(const std::string& url) {
  const size_t scheme = url.find("://");
  if (scheme == std::string::npos) return {url};
  const size_t begin = scheme + 3;
  const size_t end = std::min(url.find_first_of("/?#", begin), url.size());
  const size_t at = url.rfind('@', end);
  if (at == std::string::npos || at < begin || at >= end) return {url};
  const std::string both = url.substr(begin, at - begin);
  const size_t colon = both.find(':');
  SplitUrl split{url.substr(0, begin) + url.substr(at + 1), url_decoded(both.substr(0, colon)), ""};
  if (colon != std::string::npos) split.password = url_decoded(both.substr(colon + 1));
  return split;
}

std::string url_origin(const std::string& url) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> parsed(curl_url(), &curl_url_cleanup);
  if (parsed == nullptr || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) return "";
  const auto part = [&](CURLUPart which) {
    char* text = nullptr;
    if (curl_url_get(parsed.get(), which, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return std::string();
    const std::unique_ptr<char, void (*)(void*)> owner(text, &curl_free);
    return in_lower_case(text);
  };
  return part(CURLUPART_SCHEME) + "://" + part(CURLUPART_HOST) + ":" + part(CURLUPART_PORT);
}

}  // namespace levin
