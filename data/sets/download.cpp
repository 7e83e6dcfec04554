#include "levin/data/sets/download.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/files/http.h"
#include "levin/core/options/error.h"
#include "levin/core/process/log.h"
#include "levin/core/process/progress_line.h"

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

Attempt attempt(const std::string& url, const std::string& path, const DownloadOptions& options) {
  PartialFile file(temporary_name(path));
  if (file.error() != 0) return {"cannot create a file in its folder: " + system_error_text(file.error()), false};
  ProgressTask progress("Download " + std::filesystem::path(path).filename().string(), ProgressUnit::bytes);
  Hasher hasher(options.checksum.kind);
  uint64_t received = 0;
  HttpRequest request;
  request.url = url;
  request.max_redirects = 10;
  request.max_answer = options.max_bytes;
  request.connect_timeout = request.timeout = options.stall_timeout;
  request.receiver = [&](std::span<const std::byte> piece, std::optional<uint64_t> total) {
    received += piece.size();
    if (!file.write(piece)) return false;
    hasher.update(piece);
    progress.update(static_cast<int64_t>(received), total);
    return true;
  };
  const HttpAnswer answer = http_request(request);
  if (answer.failure == HttpFailure::receiver) {
    return {"cannot write it: " + system_error_text(file.error()), false};
  }
  if (answer.failure == HttpFailure::too_long) return {answer.problem, false};
  if (answer.failure != HttpFailure::none) {
    return {"the connection failed after " + std::to_string(received) + " bytes: " + answer.problem,
            answer.failure == HttpFailure::network};
  }
  if (!answer.is_success()) {
    return {"the server answered HTTP status " + std::to_string(answer.status), answer.is_passing()};
  }
  const std::string got = hasher.hex();
  if (!options.checksum.hex.empty() && got != options.checksum.hex) {
    return {"the wrong bytes came (" + std::to_string(received) + " of them): expected " +
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
