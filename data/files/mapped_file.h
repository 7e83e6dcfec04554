// A file as memory that the system reads when it is touched: data sets larger than the memory, shared by all processes.
// A file must not be made shorter while it is mapped: reading what is gone ends the process.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace levin {

class MappedFile {
 public:
  /// Throws DataError naming path and cause.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] const std::byte* data() const { return static_cast<const std::byte*>(memory_); }
  [[nodiscard]] uint64_t size() const { return bytes_; }

 private:
  void* memory_ = nullptr;  // null for an empty file
  uint64_t bytes_ = 0;
};

/// The values from byte `offset` on as a tensor, which keeps the file mapped; what is written to it stays in this
/// process. Throws DataError naming `path` if sizes and type need more bytes than the file has. Values that do not
/// start at a multiple of their size are copied.
[[nodiscard]] at::Tensor mapped_tensor(std::shared_ptr<const MappedFile> file, const std::string& path, uint64_t offset,
                                       const std::vector<int64_t>& sizes, at::ScalarType type);

/// The rows of `values` at `indices`, copied, so that a worker waits for the disk and not the training. Bools become
/// true for every byte other than 0: any other representation of a bool is undefined behaviour.
[[nodiscard]] at::Tensor copied_rows(const at::Tensor& values, const at::Tensor& indices);
/// The same of values that are in memory already.
[[nodiscard]] at::Tensor with_clean_bools(at::Tensor values);

}  // namespace levin
