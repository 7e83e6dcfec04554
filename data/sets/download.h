// Downloads over HTTP(S), completely or not at all: into a temporary file in the same folder, checked, then renamed. A
// broken transfer continues where it broke if the server allows it. Several processes may download the same file at
// once: each has its own temporary file, the last rename wins.
#pragma once

#include <cstdint>
#include <string>

#include "levin/core/files/checksum.h"
#include "levin/core/options/units.h"

namespace levin {

struct DownloadOptions {
  Checksum checksum = {};                  // the expected hash of the content; none by default
  int64_t attempts = 4;                    // in all; broken connections, timeouts, HTTP 5xx and 429 are tried again
  Seconds first_pause = Seconds(1);        // before the second attempt; doubles each time
  Seconds stall_timeout = Seconds(30);     // without a byte, or without a connection; whole seconds, at least 1
  uint64_t max_bytes = uint64_t{1} << 40;  // a larger response is rejected
};

/// Creates the folder of `path` if need be. Throws DataError naming url, path and cause (HTTP status, broken connection
/// and bytes received, checksum expected and got, full disk, unwritable folder); an old file at `path` is then
/// untouched.
void download(const std::string& url, const std::string& path, const DownloadOptions& options = {});

}  // namespace levin
