// Data sets of HDF5 files, row by row. Values stored like in memory are mapped; chunked,
// compressed and converted ones are read through libhdf5, under one lock, because Debian's libhdf5 allows one thread at
// a time.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <memory>
#include <string>

namespace levin {

/// Returns whether the file has a data set of this name. Throws DataError if it cannot be opened.
[[nodiscard]] bool has_hdf5_rows(const std::string& path, const std::string& name);

/// One data set of a file, as rows along its first dimension. The file stays open as long as the object exists.
class Hdf5Rows {
 public:
  /// `name` of a data set, such as "train/images". Types: integers of 8 to 64 bits, floats of 16, 32 and 64 bits,
  /// bfloat16, and h5py's bool, in either order of bytes. Throws DataError naming file, data set, cause and remedy.
  /// Trust the file: libhdf5 is not made for hostile ones.
  Hdf5Rows(const std::string& path, const std::string& name);
  ~Hdf5Rows();
  Hdf5Rows(Hdf5Rows&&) noexcept;
  Hdf5Rows& operator=(Hdf5Rows&&) noexcept;

  [[nodiscard]] int64_t size() const;
  [[nodiscard]] bool is_mapped() const;
  /// Returns the rows at `indices` ((batch) int64), copied: (batch, …). May be called from any thread. Throws DataError
  /// if reading fails.
  [[nodiscard]] at::Tensor gather(const at::Tensor& indices) const;

 private:
  struct Open;
  std::shared_ptr<const Open> open_;
};

}  // namespace levin
