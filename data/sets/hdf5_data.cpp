#include "levin/data/sets/hdf5_data.h"

#include <utility>

#include "levin/core/options/error.h"

namespace levin {

Hdf5Dataset::Hdf5Dataset(const std::string& path, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    arrays_.emplace_back(path, name);
    if (arrays_.back().size() == arrays_[0].size()) continue;
    throw DataError(path + ":" + name + " holds " + count_of(arrays_.back().size(), "row") + " but " + names[0] +
                    " holds " + std::to_string(arrays_[0].size()) + ". Give data sets with a row for each sample.");
  }
  if (arrays_.empty()) throw DataError("Hdf5Dataset: no data set was named. Name at least one.");
}

Batch Hdf5Dataset::get(int64_t index) const {
  Batch batch = get_range(index, 1), sample;
  for (const at::Tensor& tensor : batch.tensors) sample.tensors.push_back(tensor.select(0, 0));
  return sample;
}

Batch Hdf5Dataset::get_batch(const at::Tensor& indices) const {
  Batch batch;
  for (const Hdf5Rows& array : arrays_) batch.tensors.push_back(array.gather(indices));
  return batch;
}

Hdf5Data::Hdf5Data(Hdf5DataOptions options)
    : RowModule("Hdf5Data", {options.batch_size, options.val_fraction, options.split_seed, options.num_workers,
                             options.shuffle, options.drop_last, options.inputs_dtype, options.targets_dtype}),
      options_(checked(std::move(options), "Hdf5DataOptions")) {
  save_hyperparameters(options_);
}

detail::RowFile Hdf5Data::open(const std::string& path, bool may_lack_targets) const {
  if (path.empty()) return {};
  std::vector<std::string> names = {options_.inputs};
  const bool has_targets = !options_.targets.empty() && !(may_lack_targets && !has_hdf5_rows(path, options_.targets));
  if (has_targets) names.push_back(options_.targets);
  detail::RowFile file{std::make_shared<Hdf5Dataset>(path, names)};
  for (const std::string& name : names) file.names.push_back(path + ":" + name);
  return file;
}

detail::RowFile Hdf5Data::open_train() const {
  return open(options_.path);
}

detail::RowFile Hdf5Data::open_val() const {
  return open(options_.val_path);
}

detail::RowFile Hdf5Data::open_test(bool may_lack_targets) const {
  return open(options_.test_path, may_lack_targets);
}

}  // namespace levin
