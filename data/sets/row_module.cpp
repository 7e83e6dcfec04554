#include "levin/data/sets/row_module.h"

#include <c10/core/ScalarType.h>

#include <cmath>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/data/batch_memory.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/sampler.h"
#include "levin/data/loading/stratified.h"

namespace levin::detail {

namespace {

at::ScalarType type_for(at::ScalarType in_file, ArrayDtype wanted, bool is_target, at::ScalarType float_dtype) {
  switch (wanted) {
    case ArrayDtype::float32: return at::kFloat;
    case ArrayDtype::float64: return at::kDouble;
    case ArrayDtype::int64: return at::kLong;
    case ArrayDtype::file: return in_file;
    case ArrayDtype::automatic: break;
  }
  if (c10::isFloatingType(in_file)) return float_dtype;
  const bool is_class = is_target && c10::isIntegralType(in_file, /*includeBool=*/false) && in_file != at::kUInt64;
  return is_class ? at::kLong : in_file;
}

// Rows of arrays converted to other types than the files have.
class ConvertedRows final : public Dataset {
 public:
  ConvertedRows(std::shared_ptr<Dataset> rows, std::vector<at::ScalarType> types)
      : rows_(std::move(rows)), types_(std::move(types)) {}

  [[nodiscard]] int64_t size() const override { return rows_->size(); }
  [[nodiscard]] Batch get(int64_t index) const override { return converted(rows_->get(index)); }
  [[nodiscard]] bool has_get_batch() const override { return true; }
  [[nodiscard]] Batch get_batch(const at::Tensor& indices) const override {
    return converted(rows_->get_batch(indices));
  }
  [[nodiscard]] std::string sample_id(int64_t index) const override { return std::to_string(index); }

 private:
  [[nodiscard]] Batch converted(Batch batch) const {
    for (size_t k = 0; k < batch.count(); ++k) {
      at::Tensor& tensor = batch.tensors[k];
      if (tensor.scalar_type() == types_[k]) continue;
      at::Tensor made = empty_batch(tensor.sizes(), at::TensorOptions().dtype(types_[k]));
      tensor = made.copy_(tensor);
    }
    return batch;
  }

  std::shared_ptr<Dataset> rows_;
  std::vector<at::ScalarType> types_;
};

}  // namespace

std::shared_ptr<Dataset> RowModule::in_dtypes(const RowFile& file) {
  dtypes_.clear();
  if (file.rows == nullptr) return nullptr;
  std::vector<at::ScalarType> types;
  for (const at::Tensor& array : file.rows->get(0).tensors) {
    const size_t k = types.size();
    const ArrayDtype wanted = k == 0 ? options_.inputs_dtype : options_.targets_dtype;
    types.push_back(type_for(array.scalar_type(), wanted, k > 0, float_dtype()));
    dtypes_ += (k == 0 ? "" : ", ") + file.names[k] + " holds " + dtype_name(array.scalar_type()) + " and is read as " +
               dtype_name(types.back());
  }
  return std::make_shared<ConvertedRows>(file.rows, std::move(types));
}

std::string RowModule::about_dtypes() const {
  if (dtypes_.empty()) return "";
  return " " + name_ + ": " + dtypes_ +
         ". To read arrays in a different type, set inputs_dtype or targets_dtype of the data: float32, float64, "
         "int64, or "
         "file for the type in the file.";
}

void RowModule::setup(Stage stage) {
  if (stage == Stage::test || stage == Stage::predict) {
    if (test_ == nullptr) test_ = in_dtypes(open_test(/*may_lack_targets=*/stage == Stage::predict));
    has_test_ = test_ != nullptr;
    return;
  }
  if (train_ != nullptr) return;
  val_ = in_dtypes(open_val());
  train_ = in_dtypes(open_train());
  if (val_ != nullptr) return;
  const int64_t all = train_->size();
  const auto held_out = static_cast<int64_t>(std::floor(static_cast<double>(all) * options_.val_fraction));
  if (held_out == 0) return;
  const Split split = random_split(all, held_out, static_cast<uint64_t>(options_.split_seed), {}, !options_.shuffle);
  train_part_ = split.train;
  val_part_ = split.held_out;
  val_ = train_;
}

void RowModule::teardown(Stage /*stage*/) {
  train_ = val_ = test_ = nullptr;
  train_part_ = val_part_ = at::Tensor();
}

std::shared_ptr<Loader> RowModule::loader(const std::shared_ptr<Dataset>& rows, const at::Tensor& part,
                                          bool is_training) const {
  if (rows == nullptr) throw DataError(name_ + ": call setup() with the stage before asking for its loaders.");
  const bool shuffle = is_training && options_.shuffle;
  const DataLoaderOptions options{.batch_size = options_.batch_size,
                                  .shuffle = shuffle && !part.defined(),
                                  .drop_last = is_training && options_.drop_last,
                                  .num_workers = options_.num_workers};
  return std::make_shared<DataLoader>(rows, options,
                                      part.defined() ? std::make_shared<SubsetSampler>(part, shuffle) : nullptr);
}

std::shared_ptr<Loader> RowModule::train_dataloader() {
  return loader(train_, train_part_, true);
}

Loaders RowModule::val_dataloader() {
  if (train_ != nullptr && val_ == nullptr) return {};
  return loader(val_, val_part_, false);
}

Loaders RowModule::test_dataloader() {
  if (!has_test_) return {};
  return loader(test_, {}, false);
}

}  // namespace levin::detail
