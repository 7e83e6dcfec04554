// columns_program read FILE…: prints the columns of Parquet, Arrow or CSV files as JSON, a line for each;
// columns_peers.py compares them with what pyarrow reads. columns_program try FILE…: reads every column of each file,
// and prints "read" or the error. Anything but a DataError ends it. columns_program order FILE WORKERS: prints the ids
// of the training rows in two epochs of ParquetData. columns_program time FILE COLUMN…: prints the rows a second of a
// shuffled epoch of these columns, and the peak memory.
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "levin/core/options/error.h"
#include "levin/data/columns/arrow_file.h"
#include "levin/data/columns/csv_columns_file.h"
#include "levin/data/columns/parquet_data.h"
#include "levin/data/columns/table_csv.h"

namespace columns_program {
namespace {

using nlohmann::json;

std::shared_ptr<const levin::ColumnFile> open(const std::string& path) {
  if (path.ends_with(".csv")) return levin::open_csv_columns(path, ',', true, levin::TableCsvOptions().missing);
  return levin::open_arrow_file(path);
}

json values_of(const levin::ColumnValues& column) {
  json values = json::array();
  for (const double number : column.numbers) values.push_back(std::isnan(number) ? json() : json(number));
  for (const int32_t code : column.codes) {
    values.push_back(code < 0 ? json() : json(column.values.at(static_cast<size_t>(code))));
  }
  return values;
}

json read(const levin::ColumnFile& file) {
  json columns = json::object();
  for (size_t i = 0; i < file.columns().size(); ++i) {
    const levin::ColumnInfo& info = file.columns()[i];
    json& column = columns[info.name];
    column = {{"type", info.type_name}, {"is_category", info.type == levin::ColumnType::category}};
    if (!info.is_supported) continue;
    for (const auto& [name, type] : {std::pair("values", info.type), std::pair("texts", levin::ColumnType::category)}) {
      json values = json::array();
      for (size_t group = 0; group < file.group_rows().size(); ++group) {
        std::vector<levin::ColumnValues> read;
        const std::string problem = file.read(group, {{i, type}}, read);
        if (!problem.empty()) throw levin::DataError(problem);
        for (json& value : values_of(read.at(0))) values.push_back(std::move(value));
      }
      column[name] = std::move(values);
    }
  }
  return {{"columns", columns}, {"groups", file.group_rows()}};
}

void try_file(const std::string& path) {
  try {
    const json all = read(*open(path));
    std::cout << "read " << all.dump(-1, ' ', false, json::error_handler_t::replace).size() << std::endl;
  } catch (const levin::DataError& error) {
    std::cout << "error: " << error.what() << std::endl;
  }
}

json order(const std::string& path, int64_t workers) {
  levin::ParquetDataOptions options;
  options.path = path;
  options.id = "row";
  options.batch_size = 16;
  options.num_workers = workers;
  options.shuffle_window = 200;
  levin::ParquetData data(options);
  data.setup(levin::Stage::fit);
  const auto loader = data.train_dataloader();
  loader->identify_samples(true);
  json epochs = json::array();
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    json ids = json::array();
    loader->start(epoch);
    for (levin::Batch batch; loader->next(batch);) {
      for (const std::string& id : *batch.ids()) ids.push_back(id);
    }
    epochs.push_back(ids);
  }
  return epochs;
}

template <class Data, class Options>
void time_epoch(const std::string& path, std::vector<std::string> features) {
  Options options;
  options.path = path;
  options.features = std::move(features);
  options.batch_size = 1024;
  options.val_fraction = 0;
  options.num_workers = 1;
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  const double start = now();
  Data data(options);
  data.setup(levin::Stage::fit);
  const auto loader = data.train_dataloader();
  const double ready = now();
  int64_t rows = 0;
  loader->start(0);
  for (levin::Batch batch; loader->next(batch);) rows += batch.size();
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  std::printf("%lld rows: ready after %.2f s, %.0f rows/s, peak memory %ld MiB\n", static_cast<long long>(rows),
              ready - start, static_cast<double>(rows) / (now() - ready), usage.ru_maxrss >> 10);
}

}  // namespace

int run(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) return 2;
  if (arguments[0] == "read") {
    for (size_t i = 1; i < arguments.size(); ++i) std::cout << read(*open(arguments[i])).dump() << "\n";
  } else if (arguments[0] == "order") {
    std::cout << order(arguments[1], std::stoll(arguments.at(2))).dump() << "\n";
  } else if (arguments[0] == "time") {
    const std::vector<std::string> features(arguments.begin() + 2, arguments.end());
    const bool is_csv = arguments[1].ends_with(".csv");
    is_csv ? time_epoch<levin::TableCsv, levin::TableCsvOptions>(arguments[1], features)
           : time_epoch<levin::ParquetData, levin::ParquetDataOptions>(arguments[1], features);
  } else {
    for (size_t i = 1; i < arguments.size(); ++i) try_file(arguments[i]);
  }
  return 0;
}

int run_program(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}

}  // namespace columns_program
