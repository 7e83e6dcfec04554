#include "levin/data/files/mapped_file.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ne.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/data/loading/gather_rows.h"

namespace levin {

namespace {

[[noreturn]] void fail_to_map(const std::string& path, int error_number) {
  throw DataError("cannot read " + path + ": " + system_error_text(error_number) + ".");
}

std::string sizes_text(const std::vector<int64_t>& sizes) {
  std::string text = "(";
  for (size_t k = 0; k < sizes.size(); ++k) text += (k == 0 ? "" : ", ") + std::to_string(sizes[k]);
  return text + ")";
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO is refused, not waited for
  if (file < 0) fail_to_map(path, errno);
  struct stat info {};
  int error_number = ::fstat(file, &info) != 0 ? errno : 0;
  if (error_number == 0 && !S_ISREG(info.st_mode)) error_number = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
  if (error_number == 0 && info.st_size > 0) {
    bytes_ = static_cast<uint64_t>(info.st_size);
    // Writable, but never written back: an operation in place on a batch that is a view must not end the process.
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
    if (memory_ == MAP_FAILED) error_number = errno;
  }
  ::close(file);
  if (error_number != 0) fail_to_map(path, error_number);
}

MappedFile::~MappedFile() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

at::Tensor mapped_tensor(std::shared_ptr<const MappedFile> file, const std::string& path, uint64_t offset,
                         const std::vector<int64_t>& sizes, at::ScalarType type) {
  const uint64_t item = c10::elementSize(type);
  uint64_t bytes = item, strides = 1;
  bool fits = true, has_strides = true;
  for (const int64_t size : sizes) {
    const auto wide = static_cast<uint64_t>(size);
    fits = fits && size >= 0 && !__builtin_mul_overflow(bytes, wide, &bytes);
    has_strides = has_strides && !__builtin_mul_overflow(strides, std::max<uint64_t>(wide, 1), &strides) &&
                  strides <= static_cast<uint64_t>(INT64_MAX);
  }
  const uint64_t there = offset > file->size() ? 0 : file->size() - offset;
  if (!fits || bytes > there) {
    throw DataError(path + ": the file ends too early: values of shape " + sizes_text(sizes) + " and " +
                    std::to_string(item) + (item == 1 ? " byte" : " bytes") + " each need " +
                    (fits ? std::to_string(bytes) : "more than 2^64") + " bytes, there are " + std::to_string(there) +
                    ". Write the file again.");
  }
  if (!has_strides) {  // strides are products too, also where another size is 0
    throw DataError(path + ": the sizes of the shape " + sizes_text(sizes) +
                    " multiply to more than 2^63, not counting 0. Write the file again.");
  }
  const at::TensorOptions options = at::TensorOptions().dtype(type);
  if (bytes == 0) return at::empty(sizes, options);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): from_blob is older than const
  auto* values = const_cast<std::byte*>(file->data()) + offset;
  if (reinterpret_cast<uintptr_t>(values) % item == 0) {
    return at::from_blob(
        values, sizes, [file = std::move(file)](void*) {}, options);
  }
  at::Tensor copy = at::empty(sizes, options);
  std::memcpy(copy.mutable_data_ptr(), values, bytes);
  return copy;
}

at::Tensor with_clean_bools(at::Tensor values) {
  return values.scalar_type() == at::kBool ? values.view(at::kByte).ne(0) : values;
}

at::Tensor copied_rows(const at::Tensor& values, const at::Tensor& indices) {
  return with_clean_bools(gather_rows(values, indices));
}

}  // namespace levin
