// Files of columns on a web server or in a bucket of S3: they are copied to the user's cache and read there.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "levin/data/columns/column_file.h"

namespace levin {

/// Opens the file at a URL (core/storage/open_store.h) with `open`, which gets the path of a copy in the folder of
/// default_shard_cache(). The copy is made once for all processes of the user, and again when the server has a
/// different size or etag. Throws DataError naming the URL, also for what is wrong inside the file.
[[nodiscard]] std::shared_ptr<const ColumnFile> open_remote_columns(
    const std::string& url, const std::function<std::shared_ptr<const ColumnFile>(const std::string& path)>& open);

/// Returns a table's path for messages: a URL without credentials and query.
[[nodiscard]] std::string shown_table_path(const std::string& path);

}  // namespace levin
