#include "levin/data/sets/download.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "levin/core/error.h"
#include "levin/core/file_descriptor.h"
#include "levin/core/files.h"
#include "levin/core/log.h"
#include "levin/core/progress_line.h"

namespace levin {

namespace {

// The outcome of one attempt: success, or a cause and whether another attempt may help.
struct Attempt {
  std::string cause = "";
  bool worth_repeating = false;
};

// The temporary file; removed unless it was renamed into place.
class PartialFile {
 public:
  explicit PartialFile(std::string path) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    error_ = fd_ < 0 ? errno : 0;
    if (fd_ < 0) path_.clear();  // no file of ours to remove
  }
  ~PartialFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  bool write(std::span<const std::byte> bytes) {
    return write_all(fd_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}) || failed();
  }

  bool move_to(const std::string& path) {
    if (::fsync(fd_) != 0) return failed();
    if (::close(std::exchange(fd_, -1)) != 0 || ::rename(path_.c_str(), path.c_str()) != 0) return failed();
    path_.clear();
    return true;
  }

  [[nodiscard]] int error() const { return error_; }

 private:
  bool failed() {
    error_ = errno;
    return false;
  }

  std::string path_;
  int fd_ = -1;
  int error_ = 0;
};

struct Sink {
  CURL* handle;
  PartialFile& file;
  ProgressTask progress;
  Hasher hasher;
  uint64_t max_bytes;
  uint64_t received = 0;
};

size_t receive(char* data, size_t /*one*/, size_t size, void* user) {
  Sink& sink = *static_cast<Sink*>(user);
  const auto bytes = std::as_bytes(std::span(data, size));
  sink.received += size;
  if (sink.received > sink.max_bytes || !sink.file.write(bytes)) return CURL_WRITEFUNC_ERROR;
  sink.hasher.update(bytes);
  curl_off_t total = -1;
  curl_easy_getinfo(sink.handle, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &total);
  sink.progress.update(static_cast<int64_t>(sink.received), total > 0 ? std::optional<int64_t>(total) : std::nullopt);
  return size;
}

using Curl = std::unique_ptr<CURL, void (*)(CURL*)>;

Curl make_curl(const std::string& url, Seconds stall_timeout, Sink& sink, char* error_text) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  Curl curl(ready == CURLE_OK ? curl_easy_init() : nullptr, &curl_easy_cleanup);
  if (curl == nullptr) throw DataError("download: libcurl cannot be set up.");
  const long stall = std::max(1L, static_cast<long>(stall_timeout.count()));
  CURL* handle = sink.handle = curl.get();
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(handle, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(handle, CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, stall);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, stall);
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "levin");
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, error_text);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &receive);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &sink);
  return curl;
}

bool is_passing(CURLcode code, long status) {
  switch (code) {
    case CURLE_HTTP_RETURNED_ERROR: return status >= 500 || status == 429;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return true;
    default: return false;
  }
}

Attempt failed_transfer(CURLcode code, long status, const Sink& sink, const std::string& detail) {
  if (code == CURLE_HTTP_RETURNED_ERROR) {
    return {"the server answered HTTP status " + std::to_string(status), is_passing(code, status)};
  }
  if (code == CURLE_WRITE_ERROR && sink.received > sink.max_bytes) {
    return {"the answer holds more than " + std::to_string(sink.max_bytes) + " bytes", false};
  }
  if (code == CURLE_WRITE_ERROR && sink.file.error() != 0) {
    return {"cannot write it: " + system_error_text(sink.file.error()), false};
  }
  const std::string text = detail.empty() ? curl_easy_strerror(code) : detail;
  return {"the connection failed after " + std::to_string(sink.received) + " bytes: " + text, is_passing(code, status)};
}

Attempt attempt(const std::string& url, const std::string& path, const DownloadOptions& options) {
  PartialFile file(temporary_name(path));
  if (file.error() != 0) return {"cannot create a file in its folder: " + system_error_text(file.error()), false};
  Sink sink{nullptr, file,
            ProgressTask("Download " + std::filesystem::path(path).filename().string(), ProgressUnit::bytes),
            Hasher(options.checksum.kind), options.max_bytes};
  std::array<char, CURL_ERROR_SIZE> error_text{};
  const Curl curl = make_curl(url, options.stall_timeout, sink, error_text.data());
  const CURLcode code = curl_easy_perform(curl.get());
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  if (code != CURLE_OK) return failed_transfer(code, status, sink, error_text.data());
  const std::string got = sink.hasher.hex();
  if (!options.checksum.hex.empty() && got != options.checksum.hex) {
    return {"the wrong bytes came (" + std::to_string(sink.received) + " of them): expected " +
                checksum_name(options.checksum.kind) + " " + options.checksum.hex + ", got " + got,
            false};
  }
  if (!file.move_to(path)) return {"cannot write it: " + system_error_text(file.error()), false};
  return {};
}

}  // namespace

void download(const std::string& url, const std::string& path, const DownloadOptions& options) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (!folder.empty()) make_folder(folder);
  Seconds pause = options.first_pause;
  for (int64_t i = 1;; ++i) {
    const Attempt result = attempt(url, path, options);
    if (result.cause.empty()) return log::data.info("downloaded {} to {}", url, path);
    if (!result.worth_repeating || i >= options.attempts) {
      throw DataError("cannot download " + url + " to " + path + ": " + result.cause + " (attempt " +
                      std::to_string(i) + " of " + std::to_string(options.attempts) +
                      "). Check network and disk, or fetch the file by other means and put it there.");
    }
    log::data.info("attempt {} of {} to download {} has failed: {}; the next in {} s", i, options.attempts, url,
                   result.cause, pause.count());
    std::this_thread::sleep_for(pause);
    pause *= 2;
  }
}

}  // namespace levin
