#include "levin/data/sets/download.h"

#include <filesystem>

#include "levin/core/files/http.h"
#include "levin/core/process/log.h"
#include "levin/core/process/progress_line.h"
#include "levin/core/storage/transfer.h"

namespace levin {

void download(const std::string& url, const std::string& path, const DownloadOptions& options) {
  FetchLimits limits;
  limits.attempts = options.attempts;
  limits.first_pause = options.first_pause;
  limits.stall_timeout = options.stall_timeout;
  limits.min_speed = 1;
  ProgressTask progress("Download " + std::filesystem::path(path).filename().string(), ProgressUnit::bytes);
  ObjectTransfer transfer;
  transfer.action = "download " + url + " to " + path;
  transfer.fix = "Check network and disk, or fetch the file by other means and put it there.";
  transfer.path = path;
  transfer.checksum = options.checksum;
  transfer.max_bytes = options.max_bytes;
  transfer.request = [&](uint64_t offset, const std::string& validator) {
    HttpRequest request = limited_request(limits, nullptr);
    request.url = url;
    request.max_redirects = 10;
    if (offset > 0) request.headers = {"Range: bytes=" + std::to_string(offset) + "-", "If-Range: " + validator};
    return request;
  };
  transfer.failed = [](const HttpAnswer& answer, uint64_t received) { return failed_attempt(answer, received); };
  transfer.progress = [&](uint64_t received, std::optional<uint64_t> total) {
    progress.update(static_cast<int64_t>(received), total);
  };
  fetch_object(transfer, limits);
  log::data.info("downloaded {} to {}", url, path);
}

}  // namespace levin
