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
#include <memory>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

using CurlHandle = std::unique_ptr<CURL, void (*)(CURL*)>;
using CurlList = std::unique_ptr<curl_slist, void (*)(curl_slist*)>;
using OpenFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

struct Received {
  CURL* handle;
  const HttpRequest& request;
  HttpAnswer& answer;
  uint64_t bytes = 0;
};

size_t take_body(char* data, size_t /*one*/, size_t size, void* user) {
  auto& [handle, request, answer, bytes] = *static_cast<Received*>(user);
  if ((bytes += size) > request.max_answer) {
    answer.failure = HttpFailure::too_long;
    return CURL_WRITEFUNC_ERROR;
  }
  if (!request.receiver) {
    answer.body.append(data, size);
    return size;
  }
  curl_off_t total = -1;
  curl_easy_getinfo(handle, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &total);
  const auto announced = total > 0 ? std::optional(static_cast<uint64_t>(total)) : std::nullopt;
  if (request.receiver(std::as_bytes(std::span(data, size)), announced)) return size;
  answer.failure = HttpFailure::receiver;
  return CURL_WRITEFUNC_ERROR;
}

size_t give_file(char* data, size_t one, size_t count, void* user) {
  auto* file = static_cast<std::FILE*>(user);
  const size_t got = std::fread(data, 1, one * count, file);
  return std::ferror(file) != 0 ? CURL_READFUNC_ABORT : got;
}

int progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& cancelled = *static_cast<const std::function<bool()>*>(user);
  return cancelled && cancelled() ? 1 : 0;
}

CurlHandle make_handle() {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  CurlHandle handle(ready == CURLE_OK ? curl_easy_init() : nullptr, &curl_easy_cleanup);
  if (handle == nullptr) throw Error("http: libcurl cannot be set up.");
  return handle;
}

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
  if (request.body_file.empty() && !request.receiver) {
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, milliseconds(request.timeout));
  } else {
    curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
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
  curl_easy_setopt(handle, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(info.st_size));
  return file;
}

std::string failure(CURLcode code, const HttpRequest& request, const char* detail) {
  if (code == CURLE_ABORTED_BY_CALLBACK) return "it was cancelled";
  if (code == CURLE_WRITE_ERROR) return "the answer is longer than " + std::to_string(request.max_answer) + " bytes";
  return *detail != '\0' ? detail : curl_easy_strerror(code);
}

bool is_of_network(CURLcode code) {
  constexpr std::array codes{CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT, CURLE_PARTIAL_FILE, CURLE_GOT_NOTHING,
                             CURLE_OPERATION_TIMEDOUT,   CURLE_SEND_ERROR,      CURLE_RECV_ERROR,   CURLE_HTTP2,
                             CURLE_HTTP2_STREAM};
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

void read_answer(CURL* handle, HttpAnswer& answer) {
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &answer.status);
  const char* location = nullptr;
  if (curl_easy_getinfo(handle, CURLINFO_REDIRECT_URL, &location) == CURLE_OK && location != nullptr)
    answer.location = location;
  curl_off_t wait = 0;
  if (curl_easy_getinfo(handle, CURLINFO_RETRY_AFTER, &wait) == CURLE_OK && wait > 0)
    answer.retry_after = Seconds(static_cast<double>(wait));
}

}  // namespace

HttpAnswer http_request(const HttpRequest& request) {
  const CurlHandle owner = make_handle();
  CURL* handle = owner.get();
  curl_easy_setopt(handle, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);  // "/../" is not resolved
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, request.max_redirects > 0 ? 1L : 0L);
  curl_easy_setopt(handle, CURLOPT_MAXREDIRS, request.max_redirects);
  if (request.receiver) curl_easy_setopt(handle, CURLOPT_FAILONERROR, 1L);  // the page of an error is not the file
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "levin");
  set_credentials(handle, request);
  set_limits(handle, request);
  const OpenFile file = open_body(request.body_file, handle);
  if (request.body_file.empty() && request.method != "GET") {
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, request.body.c_str());
  }
  curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  curl_slist* lines = curl_slist_append(nullptr, "Expect:");  // no waiting for "100 Continue"
  for (const std::string& line : request.headers) lines = curl_slist_append(lines, line.c_str());
  const CurlList headers(lines, &curl_slist_free_all);
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  HttpAnswer answer;
  Received received{handle, request, answer};
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &take_body);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &received);
  std::array<char, CURL_ERROR_SIZE> detail{};
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, detail.data());
  const CURLcode code = curl_easy_perform(handle);
  read_answer(handle, answer);
  if (code == CURLE_OK || code == CURLE_HTTP_RETURNED_ERROR) return answer;
  answer.status = 0;
  answer.problem = failure(code, request, detail.data());
  if (answer.failure == HttpFailure::none)
    answer.failure = is_of_network(code) ? HttpFailure::network : HttpFailure::other;
  return answer;
}

std::string url_encoded(const std::string& text, const std::string& keep) {
  constexpr std::string_view hex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos || keep.find(c) != std::string::npos;
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += hex[byte >> 4];
      out += hex[byte & 15];
    }
  }
  return out;
}

SplitUrl split_credentials(const std::string& url) {
  const size_t scheme = url.find("://");
  if (scheme == std::string::npos) return {url};
  const size_t begin = scheme + 3;
  const size_t end = std::min(url.find_first_of("/?#", begin), url.size());
  const size_t at = url.rfind('@', end);
  if (at == std::string::npos || at < begin || at >= end) return {url};
  const auto decoded = [](const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      unsigned value = 0;
      const char* first = text.data() + i + 1;
      if (text[i] == '%' && i + 2 < text.size() && std::from_chars(first, first + 2, value, 16).ptr == first + 2) {
        out += static_cast<char>(value);
        i += 2;
      } else {
        out += text[i];
      }
    }
    return out;
  };
  const std::string both = url.substr(begin, at - begin);
  const size_t colon = both.find(':');
  SplitUrl split{url.substr(0, begin) + url.substr(at + 1), decoded(both.substr(0, colon)), ""};
  if (colon != std::string::npos) split.password = decoded(both.substr(colon + 1));
  return split;
}

std::string url_origin(const std::string& url) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> parsed(curl_url(), &curl_url_cleanup);
  if (parsed == nullptr || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) return "";
  const auto part = [&](CURLUPart which) {
    char* text = nullptr;
    if (curl_url_get(parsed.get(), which, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return std::string();
    const std::unique_ptr<char, void (*)(void*)> owner(text, &curl_free);
    std::string lower = text;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return lower;
  };
  return part(CURLUPART_SCHEME) + "://" + part(CURLUPART_HOST) + ":" + part(CURLUPART_PORT);
}

}  // namespace levin
