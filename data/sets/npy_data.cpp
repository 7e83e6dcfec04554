#include "levin/data/sets/npy_data.h"

#include <utility>

#include "levin/core/options/error.h"
#include "levin/data/files/mapped_file.h"
#include "levin/data/files/npy.h"

namespace levin {

NpyDataset::NpyDataset(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    arrays_.push_back(map_npy(path));
    const at::Tensor& array = arrays_.back();
    if (array.dim() == 0 || array.size(0) == 0) {
      throw DataError(path + ": the array has no rows, expected a sample in each. Save an array of shape (n, …).");
    }
    if (array.size(0) == arrays_[0].size(0)) continue;
    throw DataError(path + " holds " + count_of(array.size(0), "row") + " but " + paths[0] + " holds " +
                    std::to_string(arrays_[0].size(0)) + ". Give files with a row for each sample.");
  }
  if (arrays_.empty()) throw DataError("NpyDataset: no file was given. Give at least one.");
}

Batch NpyDataset::get(int64_t index) const {
  Batch sample;
  for (const at::Tensor& array : arrays_) sample.tensors.push_back(with_clean_bools(array.select(0, index).clone()));
  return sample;
}

Batch NpyDataset::get_batch(const at::Tensor& indices) const {
  Batch batch;
  for (const at::Tensor& array : arrays_) batch.tensors.push_back(copied_rows(array, indices));
  return batch;
}

NpyData::NpyData(NpyDataOptions options)
    : RowModule("NpyData", {options.batch_size, options.val_fraction, options.split_seed, options.num_workers,
                            options.shuffle, options.drop_last, options.inputs_dtype, options.targets_dtype}),
      options_(checked(std::move(options), "NpyDataOptions")) {
  save_hyperparameters(options_);
}

detail::RowFile NpyData::open(const std::string& inputs, const std::string& targets, bool may_lack_targets) const {
  if (inputs.empty()) return {};
  if (targets.empty() != options_.targets.empty() && !(may_lack_targets && targets.empty())) {
    throw ConfigError("NpyDataOptions.targets: " + inputs + (targets.empty() ? " has none" : " has " + targets) +
                      " but the training data " + (options_.targets.empty() ? "has none" : "has") +
                      ". Give targets for all inputs or for none.");
  }
  const std::vector<std::string> paths = targets.empty() ? std::vector{inputs} : std::vector{inputs, targets};
  return {std::make_shared<NpyDataset>(paths), paths};
}

detail::RowFile NpyData::open_train() const {
  return open(options_.inputs, options_.targets);
}

detail::RowFile NpyData::open_val() const {
  return open(options_.val_inputs, options_.val_targets);
}

detail::RowFile NpyData::open_test(bool may_lack_targets) const {
  return open(options_.test_inputs, options_.test_targets, may_lack_targets);
}

}  // namespace levin
