#include "levin/data/columns/table_csv.h"

#include <utility>

#include "levin/data/columns/csv_columns_file.h"

namespace levin {

TableCsv::TableCsv(TableCsvOptions options)
    : TableModule("TableCsv", detail::shared_options(checked(options, "TableCsvOptions")), options.header),
      options_(std::move(options)) {
  save_hyperparameters(options_);
}

std::shared_ptr<const ColumnFile> TableCsv::open(const std::string& path) const {
  return open_csv_columns(path, options_.delimiter[0], options_.header, options_.missing, options_.on_error);
}

}  // namespace levin
