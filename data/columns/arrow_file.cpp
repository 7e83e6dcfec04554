#include "levin/data/columns/arrow_file.h"

#include <fstream>

#include "levin/core/options/error.h"
#include "levin/core/process/shared_library.h"

namespace levin {

namespace {

using Open = ColumnFile* (*)(const std::string& path, bool is_parquet, std::string& problem);

Open opened() {
  static const Open open = [] {
    const std::string folder = folder_of_code(reinterpret_cast<const void*>(&open_arrow_file));
    SharedLibrary library(
        folder + "/liblevin_arrow.so", "Parquet and Arrow files",
        "Levin's library for them is next to liblevin_core.so if Arrow was found when Levin was built: "
        "see docs/tables.md. Or write the table as CSV.",
        SharedLibrary::Names::own);
    library.keep();
    Open found = nullptr;
    library.find(found, "levin_open_column_file");
    return found;
  }();
  return open;
}

bool starts_as_parquet(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string start(8, '\0');
  file.read(start.data(), 8);
  start.resize(static_cast<size_t>(file.gcount()));
  if (start.starts_with("PAR1")) return true;
  if (start.starts_with("ARROW1")) return false;
  const bool is_feather1 = start.starts_with("FEA1"), is_encrypted = start.starts_with("PARE");
  throw DataError(path + ": expected a Parquet file, which starts with PAR1, or an Arrow file (Feather version 2), " +
                  "which starts with ARROW1" +
                  (is_feather1 ? ". It is a Feather file of version 1: write it again with pyarrow.feather."
                   : is_encrypted
                       ? ". It is an encrypted Parquet file: write it without encryption."
                       : ". Check the path; a stream of record batches (.arrows) has to be written as a file."));
}

}  // namespace

std::shared_ptr<const ColumnFile> open_arrow_file(const std::string& path) {
  if (!std::ifstream(path, std::ios::binary)) throw DataError(path + ": cannot be opened. Check the path.");
  const bool is_parquet = starts_as_parquet(path);
  std::string problem;
  std::shared_ptr<const ColumnFile> file(opened()(path, is_parquet, problem));
  if (file == nullptr) {
    throw DataError(path + ": it cannot be read as " + (is_parquet ? "a Parquet" : "an Arrow") +
                    " file: " + cut_text(problem, 300) + ". Is it damaged or incomplete? Write it again.");
  }
  return file;
}

}  // namespace levin
