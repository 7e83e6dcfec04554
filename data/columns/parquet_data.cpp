#include "levin/data/columns/parquet_data.h"

#include <utility>

#include "levin/data/columns/arrow_file.h"

namespace levin {

ParquetData::ParquetData(ParquetDataOptions options)
    : TableModule("ParquetData", detail::shared_options(checked(options, "ParquetDataOptions"))) {
  save_hyperparameters(options);
}

std::shared_ptr<const ColumnFile> ParquetData::open(const std::string& path) const {
  return open_arrow_file(path);
}

}  // namespace levin
