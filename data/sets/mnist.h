// MNIST and Fashion-MNIST: 60000 training and 10000 test images of 28 x 28 grey pixels in ten classes.
//
//   trainer.fit(model, levin::FashionMnist({.batch_size = 64}));
//
// Batches: x (batch, 1, 28, 28) float32, or (batch, 784) with .flatten, and y (batch) int64.
// The four archives are looked for in `root`; without one in Debian's folder (package dataset-fashion-mnist), then in
// Levin's cache folder, where prepare_data() puts them if they do not exist.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/data/data_module.h"
#include "levin/data/loading/batching.h"
#include "levin/data/loading/dataset.h"

namespace levin {

/// Options of Mnist and FashionMnist.
struct MnistOptions {
  std::string root = "";  // folder of the archives (.gz or unpacked); "": found or downloaded, see above
  int64_t batch_size = 64;
  int64_t val_size = 5000;  // training images held out for validation
  int64_t split_seed =
      42;  // which ones; independent of the run's seed, so that runs with different seeds stay comparable
  int64_t num_workers = 0;        // the images are in memory: more is rarely faster
  bool normalize = true;          // subtract the mean and divide by the deviation of the training pixels; else 0 to 1
  bool flatten = false;           // x as (batch, 784)
  bool shuffle = true;            // the training images
  bool drop_last = false;         // leave out a last training batch that is not full
  int64_t crop_padding = 0;       // augmentation: training images move by up to as many pixels in each direction
  bool flip = false;              // augmentation: every second training image is mirrored, left to right
  bool download = true;           // if the archives do not exist
  std::string url = "";           // folder of the archives on a server; "": the data set's usual one
  bool stratified_split = false;  // the held-out images have the classes in the data's proportions
  BatchingOptions batching = {};  // of the training images
  template <class = void>
  static auto fields() {
    using O = MnistOptions;
    return levin::fields(
        field("root", &O::root, "folder of the archives; \"\": Debian's, else the cache folder").ranks_may_differ(),
        field("batch_size", &O::batch_size, "samples of a batch").min(1),
        field("val_size", &O::val_size, "training images held out for validation").min(0).max(59999),
        field("split_seed", &O::split_seed, "which images are held out").min(0),
        field("num_workers", &O::num_workers, "threads that fetch batches ahead").min(0).max(1024).ranks_may_differ(),
        field("normalize", &O::normalize, "to mean 0 and deviation 1 over the training pixels; else 0 to 1"),
        field("flatten", &O::flatten, "x as (batch, 784) instead of (batch, 1, 28, 28)"),
        field("shuffle", &O::shuffle, "a new order of the training images every epoch"),
        field("drop_last", &O::drop_last, "leave out a last training batch that is not full"),
        field("crop_padding", &O::crop_padding,
              "training images are shifted by up to this many pixels, differently every epoch")
            .min(0)
            .max(27),
        field("flip", &O::flip, "every second training image, at random, is mirrored left to right"),
        field("download", &O::download, "download the archives if they do not exist"),
        field("url", &O::url, "folder of the archives on a server; \"\": the usual one"),
        field("stratified_split", &O::stratified_split,
              "the held-out images have the classes in the data's proportions"),
        field("batching", &O::batching, "weights and stratified, of the training batches"));
  }
};

namespace detail {

/// The differences between MNIST and its variants.
struct MnistArchive {
  const char* name;
  const char* folder;         // within the cache
  const char* system_folder;  // of a Debian package, or ""
  const char* url;
  const char* md5[4];  // of train images, train labels, test images, test labels
  double mean;         // of the training pixels, scaled to 0 .. 1
  double deviation;
};

/// The base of Mnist and FashionMnist. The constructor throws ConfigError for options that contradict each other;
/// prepare_data() and setup() throw DataError naming an archive that is missing or damaged.
class MnistModule : public DataModule {
 public:
  void prepare_data() override;
  void setup(Stage stage) override;
  void teardown(Stage stage) override;
  std::shared_ptr<Loader> train_dataloader() override;
  Loaders val_dataloader() override;
  Loaders test_dataloader() override;
  Loaders predict_dataloader() override { return test_dataloader(); }

  [[nodiscard]] const MnistOptions& options() const { return options_; }
  /// Returns the folder in which the archives are, or into which they are downloaded.
  [[nodiscard]] std::string folder() const;

 protected:
  MnistModule(const MnistArchive& archive, MnistOptions options);

 private:
  [[nodiscard]] std::shared_ptr<TensorDataset> read(bool train) const;
  [[nodiscard]] std::shared_ptr<Dataset> augmented() const;
  [[nodiscard]] Loaders in_order(const std::shared_ptr<TensorDataset>& images, const char* hook) const;

  const MnistArchive& archive_;
  MnistOptions options_;
  std::shared_ptr<TensorDataset> train_ = nullptr;
  std::shared_ptr<TensorDataset> val_ = nullptr;  // null if nothing is held out
  std::shared_ptr<TensorDataset> test_ = nullptr;
};

}  // namespace detail

/// MNIST (LeCun et al. 1998): handwritten digits.
class Mnist final : public detail::MnistModule {
 public:
  using Options = MnistOptions;
  explicit Mnist(Defaults = {}) : Mnist(MnistOptions()) {}
  explicit Mnist(MnistOptions options);
};

/// Fashion-MNIST (Xiao et al. 2017, https://arxiv.org/abs/1708.07747): clothing, in the layout of MNIST.
class FashionMnist final : public detail::MnistModule {
 public:
  using Options = MnistOptions;
  explicit FashionMnist(Defaults = {}) : FashionMnist(MnistOptions()) {}
  explicit FashionMnist(MnistOptions options);
  [[nodiscard]] std::vector<std::string> label_names() const override { return class_names(); }
  /// "T-shirt/top", "Trouser", … in the order of the labels.
  [[nodiscard]] static const std::vector<std::string>& class_names();
};

}  // namespace levin
