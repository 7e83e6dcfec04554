// Files of Apache Arrow: Parquet, and Arrow's file format, which is Feather version 2. The library that reads them,
// liblevin_arrow.so, is opened with the first file: only runs with such files need Arrow, and its symbols stay apart
// from those of LibTorch.
#pragma once

#include <memory>
#include <string>

#include "levin/data/columns/column_file.h"

namespace levin {

/// Opens a Parquet or Arrow file, which it knows by its first bytes. A row group of Parquet, or a record batch of
/// Arrow, is a group. Throws DataError naming the path and the cause, Error if Levin was built without Arrow.
[[nodiscard]] std::shared_ptr<const ColumnFile> open_arrow_file(const std::string& path);

}  // namespace levin
