// Objects on a web server: a key is the path below the store's URL.
#pragma once

#include <memory>
#include <string>

#include "levin/core/storage/object_store.h"

namespace levin {

/// Reads with GET and HEAD; writing and listing are errors. A query in the URL, such as a token, is sent with every
/// request. A user and a password in it are sent too, but never to another server by a redirect.
[[nodiscard]] std::shared_ptr<ObjectStore> open_http_store(const std::string& url, const FetchLimits& limits = {});

}  // namespace levin
