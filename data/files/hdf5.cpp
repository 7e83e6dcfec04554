#include "levin/data/files/hdf5.h"

#include <hdf5.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/data/batch_memory.h"
#include "levin/data/files/mapped_file.h"

namespace levin {

namespace {

// Chunks that are kept uncompressed, of each data set.
constexpr size_t kChunkCacheBytes = 64 << 20;
constexpr size_t kChunkCacheSlots = 12421;  // a prime, far more than the chunks that fit

std::mutex& library_mutex() {
  static std::mutex mutex;
  return mutex;
}

// libhdf5 prints its errors unless it is told not to. Held while the library is used, under its lock.
class Hdf5Scope {
 public:
  Hdf5Scope() : lock_(library_mutex()) {
    H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Hdf5Scope() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }
  Hdf5Scope(const Hdf5Scope&) = delete;
  Hdf5Scope& operator=(const Hdf5Scope&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
  H5E_auto2_t print_ = nullptr;
  void* data_ = nullptr;
};

// The innermost cause of the last error.
std::string hdf5_cause() {
  std::string text = "unknown error";
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned place, const H5E_error2_t* error, void* to) -> herr_t {
        if (place == 0 && error->desc != nullptr) *static_cast<std::string*>(to) = error->desc;
        return 0;
      },
      &text);
  return text;
}

// An id of libhdf5 and the function that gives it back.
class Handle {
 public:
  Handle() = default;
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Handle() {
    if (id_ >= 0 && close_ != nullptr) close_(id_);
  }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  [[nodiscard]] hid_t id() const { return id_; }
  [[nodiscard]] bool failed() const { return id_ < 0; }

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

struct ValueKind {
  at::ScalarType type = at::kFloat;
  Handle memory = {};       // how libhdf5 is to hand the values over
  bool as_in_file = false;  // the same as in the file
};

at::ScalarType integer_type(hid_t type) {
  const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
  switch (H5Tget_size(type)) {
    case 1: return is_signed ? at::kChar : at::kByte;
    case 2: return is_signed ? at::kShort : at::kUInt16;
    case 4: return is_signed ? at::kInt : at::kUInt32;
    case 8: return is_signed ? at::kLong : at::kUInt64;
    default: return at::ScalarType::Undefined;
  }
}

// Tells float types apart by the widths of exponent and mantissa.
at::ScalarType float_type(hid_t type) {
  size_t sign = 0, exponent_at = 0, exponent = 0, mantissa_at = 0, mantissa = 0;
  H5Tget_fields(type, &sign, &exponent_at, &exponent, &mantissa_at, &mantissa);
  const auto is = [&](size_t bytes, size_t e, size_t m) {
    return H5Tget_size(type) == bytes && exponent == e && mantissa == m;
  };
  if (is(2, 5, 10)) return at::kHalf;
  if (is(2, 8, 7)) return at::kBFloat16;
  if (is(4, 8, 23)) return at::kFloat;
  if (is(8, 11, 52)) return at::kDouble;
  return at::ScalarType::Undefined;
}

// h5py's bool: an enum of FALSE, 0, and TRUE, 1, in a byte.
bool is_bool(hid_t type) {
  int8_t no = -1, yes = -1;
  return H5Tget_size(type) == 1 && H5Tget_nmembers(type) == 2 && H5Tenum_valueof(type, "FALSE", &no) >= 0 &&
         H5Tenum_valueof(type, "TRUE", &yes) >= 0 && no == 0 && yes == 1;
}

ValueKind kind_of(hid_t type, const std::string& where) {
  ValueKind kind;
  switch (H5Tget_class(type)) {
    case H5T_INTEGER: kind.type = integer_type(type); break;
    case H5T_FLOAT: kind.type = float_type(type); break;
    case H5T_ENUM: kind.type = is_bool(type) ? at::kBool : at::ScalarType::Undefined; break;
    default: kind.type = at::ScalarType::Undefined;
  }
  if (kind.type == at::ScalarType::Undefined) {
    throw DataError(where + ": LibTorch has no such type. Save it as int8 to int64, " +
                    "uint8 to uint64, float16, float32 or float64.");
  }
  kind.memory = Handle(H5Tcopy(type), H5Tclose);
  if (kind.type != at::kBool) H5Tset_order(kind.memory.id(), H5T_ORDER_LE);
  kind.as_in_file = H5Tequal(kind.memory.id(), type) > 0;
  return kind;
}

// Within a Hdf5Scope.
Handle open_file(const std::string& path) {
  Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  if (file.failed())
    throw DataError(path + ": cannot be opened as an HDF5 file: " + hdf5_cause() + ". Check the path.");
  return file;
}

}  // namespace

bool has_hdf5_rows(const std::string& path, const std::string& name) {
  const Hdf5Scope scope;
  const Handle file = open_file(path);
  const Handle dataset(H5Dopen2(file.id(), name.c_str(), H5P_DEFAULT), H5Dclose);
  return !dataset.failed();
}

struct Hdf5Rows::Open {
  std::string where = {};  // for messages
  std::vector<int64_t> sizes = {};
  at::ScalarType type = at::kFloat;
  at::Tensor mapped = {};  // undefined: read through the handles
  mutable Handle file = {}, dataset = {}, memory = {};

  Open() = default;
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
  ~Open() { close(); }

  void close() const {
    const Hdf5Scope scope;
    memory = Handle();
    dataset = Handle();
    file = Handle();
  }
  [[noreturn]] void fail(const std::string& what) const { throw DataError(where + ": " + what); }

  void open(const std::string& path, const std::string& name);
  void check_extents(const std::vector<hsize_t>& extents, uint64_t bytes) const;
  void map(const std::string& path);
  void read_rows(int64_t first, int64_t count, std::byte* to) const;
};

void Hdf5Rows::Open::open(const std::string& path, const std::string& name) {
  const Hdf5Scope scope;
  file = open_file(path);
  const Handle access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  H5Pset_chunk_cache(access.id(), kChunkCacheSlots, kChunkCacheBytes, H5D_CHUNK_CACHE_W0_DEFAULT);
  dataset = Handle(H5Dopen2(file.id(), name.c_str(), access.id()), H5Dclose);
  if (dataset.failed()) fail("no such data set: " + hdf5_cause() + ". `h5ls -r FILE` lists the data sets.");
  const Handle value_type(H5Dget_type(dataset.id()), H5Tclose);
  ValueKind kind = kind_of(value_type.id(), where);
  type = kind.type;
  memory = std::move(kind.memory);
  const Handle space(H5Dget_space(dataset.id()), H5Sclose);
  std::vector<hsize_t> extents(static_cast<size_t>(std::max(0, H5Sget_simple_extent_ndims(space.id()))));
  if (!extents.empty()) H5Sget_simple_extent_dims(space.id(), extents.data(), nullptr);
  if (extents.empty() || extents[0] == 0)
    fail("it has no rows, expected a sample in each. Save an array of shape (n, …).");
  check_extents(extents, c10::elementSize(type));
  sizes.assign(extents.begin(), extents.end());
  const Handle created(H5Dget_create_plist(dataset.id()), H5Pclose);
  const bool contiguous = H5Pget_layout(created.id()) == H5D_CONTIGUOUS && H5Pget_external_count(created.id()) == 0;
  if (contiguous && kind.as_in_file) map(path);
}

// A file may claim any size of values that were never written. `bytes`: of one value. Strides are products too, where a
// size of 0 counts as 1.
void Hdf5Rows::Open::check_extents(const std::vector<hsize_t>& extents, uint64_t bytes) const {
  for (const hsize_t extent : extents) {
    const bool overflows = __builtin_mul_overflow(bytes, std::max<uint64_t>(extent, 1), &bytes);
    if (!overflows && bytes <= static_cast<uint64_t>(INT64_MAX)) continue;
    fail("its sizes multiply to more than 2^63 bytes, with one of " + std::to_string(extent) +
         ". Is the file damaged? Write it again.");
  }
}

// A data set to which no value was written has no position in the file.
void Hdf5Rows::Open::map(const std::string& path) {
  const haddr_t offset = H5Dget_offset(dataset.id());
  if (offset == HADDR_UNDEF) return;
  mapped = mapped_tensor(std::make_shared<const MappedFile>(path), path, offset, sizes, type);
}

void Hdf5Rows::Open::read_rows(int64_t first, int64_t count, std::byte* to) const {
  std::vector<hsize_t> start(sizes.size(), 0), extents(sizes.begin(), sizes.end());
  start[0] = static_cast<hsize_t>(first);
  extents[0] = static_cast<hsize_t>(count);
  const Handle from(H5Dget_space(dataset.id()), H5Sclose);
  const Handle there(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), H5Sclose);
  if (H5Sselect_hyperslab(from.id(), H5S_SELECT_SET, start.data(), nullptr, extents.data(), nullptr) < 0 ||
      H5Dread(dataset.id(), memory.id(), there.id(), from.id(), H5P_DEFAULT, to) < 0) {
    fail("row " + std::to_string(first) + " cannot be read: " + hdf5_cause() +
         ". Is the file damaged, or a filter that compressed it not installed?");
  }
}

Hdf5Rows::Hdf5Rows(const std::string& path, const std::string& name) {
  auto open = std::make_shared<Open>();
  open->where = path + ":" + name;
  open->open(path, name);
  if (open->mapped.defined()) open->close();
  open_ = std::move(open);
}

Hdf5Rows::~Hdf5Rows() = default;
Hdf5Rows::Hdf5Rows(Hdf5Rows&&) noexcept = default;
Hdf5Rows& Hdf5Rows::operator=(Hdf5Rows&&) noexcept = default;

int64_t Hdf5Rows::size() const {
  return open_->sizes[0];
}

bool Hdf5Rows::is_mapped() const {
  return open_->mapped.defined();
}

at::Tensor Hdf5Rows::gather(const at::Tensor& indices) const {
  if (is_mapped()) return copied_rows(open_->mapped, indices);
  const at::Tensor rows = indices.contiguous();
  const auto* row = rows.const_data_ptr<int64_t>();
  std::vector<int64_t> sizes = open_->sizes;
  sizes[0] = rows.numel();
  at::Tensor batch = empty_batch(sizes, at::TensorOptions().dtype(open_->type));
  if (batch.numel() == 0) return batch;
  const size_t row_bytes = batch.nbytes() / static_cast<size_t>(rows.numel());
  auto* to = static_cast<std::byte*>(batch.mutable_data_ptr());
  // In the order of the file, so that a chunk is uncompressed once; neighbours in both places are read at once.
  std::vector<int64_t> order(static_cast<size_t>(rows.numel()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [row](int64_t a, int64_t b) { return row[a] < row[b]; });
  const Hdf5Scope scope;
  for (size_t i = 0, end = 0; i < order.size(); i = end) {
    end = i + 1;
    while (end < order.size() && order[end] == order[end - 1] + 1 && row[order[end]] == row[order[end - 1]] + 1) ++end;
    open_->read_rows(row[order[i]], static_cast<int64_t>(end - i), to + static_cast<size_t>(order[i]) * row_bytes);
  }
  return with_clean_bools(batch);
}

}  // namespace levin
