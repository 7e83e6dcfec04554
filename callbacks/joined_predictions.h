// What the ranks have kept of a prediction, joined to one file by rank 0.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "levin/callbacks/prediction_files.h"

namespace levin {

/// The shape of rows: their type, and their sizes without the first dimension.
struct RowShape {
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> sizes = {};

  bool operator==(const RowShape&) const = default;

  [[nodiscard]] std::vector<int64_t> of_rows(int64_t rows) const {
    std::vector<int64_t> all = {rows};
    all.insert(all.end(), sizes.begin(), sizes.end());
    return all;
  }
};

/// A tensor or a list of strings of one loader, from all ranks.
struct JoinedColumn {
  std::vector<std::string> spools = {};
  std::vector<std::vector<RowShape>> shapes = {};  // of each spool; none for strings
};

using JoinedColumns = std::map<std::pair<std::string, int64_t>, JoinedColumn>;  // by name and dataloader_idx

/// Calls take(block, reader) for each block of the files, in order.
template <class Take>
void copy_blocks(const std::vector<std::string>& spools, const Take& take) {
  SpoolReader reader(spools);
  for (SpoolBlock block; reader.next(block);) take(block, reader);
}

/// Write the columns to a file, whole or not at all. They throw Error if the columns do not fit into the format.
void write_joined_tensors(const std::string& path, const JoinedColumns& joined);  // .safetensors
void write_joined_array(const std::string& path, const JoinedColumns& joined);    // .npy

}  // namespace levin
