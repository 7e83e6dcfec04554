// Folders of images as data for training: random parts and flips for training, the middle for everything else.
//
//   data: {class_path: ImageFolderData, init_args: {train: photos/train, val: photos/val, size: 224, num_workers: 4}}
//
// Batches: x (batch, 3, size, size) float32 and y (batch) int64, the number of the sub-folder.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/data/data_module.h"
#include "levin/data/sets/image_folder.h"

namespace levin {

/// Options of ImageFolderData.
struct ImageFolderDataOptions {
  std::string train = "";  // a folder with a sub-folder for each class
  std::string val = "";    // "": val_fraction of the training images
  std::string test = "";   // of the test and predict stages; "": none. To predict, images need no folders of classes
  double val_fraction = 0.1;
  int64_t split_seed = 42;  // which images are held out; independent of the run's seed
  int64_t size = 224;       // pixels, of height and width
  int64_t resize = 256;     // validation and test: the shorter side, before the middle is cut out
  double min_scale = 0.08;  // training: the smallest part of an image, as a share of its area
  bool flip = true;         // mirror every second training image
  std::vector<double> mean = {0.485, 0.456, 0.406};  // of red, green and blue from 0 to 1: ImageNet's
  std::vector<double> std = {0.229, 0.224, 0.225};
  int64_t batch_size = 32;
  int64_t num_workers = 2;
  bool shuffle = true;     // the training images
  bool drop_last = false;  // leave out an incomplete last training batch
  bool scaled_decoding = true;
  EnumOption<OnImageError> on_error = OnImageError::raise;
  int64_t max_pixels = kMaxPixels;
  template <class = void>
  static auto fields() {
    using O = ImageFolderDataOptions;
    return levin::fields(
        field("train", &O::train, "the folder to train on, with a sub-folder for each class")
            .not_empty()
            .ranks_may_differ(),
        field("val", &O::val, "the folder to validate on; \"\": val_fraction of the training images")
            .ranks_may_differ(),
        field("test", &O::test,
              "the folder to test and predict on; \"\": none. Images to predict may lie in it without sub-folders")
            .ranks_may_differ(),
        field("val_fraction", &O::val_fraction, "of the training images, held out for validation if val is \"\"")
            .min(0.0)
            .below(1.0),
        field("split_seed", &O::split_seed, "which images are held out").min(0),
        field("size", &O::size, "pixels, of height and width of an image in a batch").min(1),
        field("resize", &O::resize, "validation and test: pixels of the shorter side before the middle is cut out")
            .min(1),
        detail::image_fields<O>(), field("batch_size", &O::batch_size, "samples of a batch").min(1),
        field("num_workers", &O::num_workers, "threads that read images and make batches ahead")
            .min(0)
            .max(1024)
            .ranks_may_differ(),
        field("shuffle", &O::shuffle,
              "a new order of the training images every epoch; false: the order of their names"),
        field("drop_last", &O::drop_last, "leave out an incomplete last training batch"),
        field("scaled_decoding", &O::scaled_decoding,
              "decode JPEGs that shrink by half or more at a smaller size: faster"),
        field("on_error", &O::on_error, "an image that cannot be read: raise the error, or skip the image"),
        field("max_pixels", &O::max_pixels, "of a file; larger images are an error").min(1));
  }
};

/// Folders of images, split for training and validation. Batches: x (batch, 3, size, size) float32 and y (batch) int64.
/// The constructor throws ConfigError if `resize` is below `size`, setup() throws DataError as ImageFolder does, and
/// loaders throw DataError for an image that cannot be read, unless on_error is skip. To predict, the folder is read by
/// predict_dataloader(), which knows the classes from a checkpoint; only without one they are the sub-folders of
/// `train`, if that exists.
class ImageFolderData final : public DataModule {
 public:
  using Options = ImageFolderDataOptions;
  explicit ImageFolderData(ImageFolderDataOptions options);

  void setup(Stage stage) override;
  /// Says how many images were skipped.
  void teardown(Stage stage) override;
  std::shared_ptr<Loader> train_dataloader() override;
  Loaders val_dataloader() override;
  Loaders test_dataloader() override;
  Loaders predict_dataloader() override;
  [[nodiscard]] std::vector<std::string> label_names() const override;
  /// The class names.
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;

  /// Names of the classes in the order of their numbers: the sub-folders of `train`. After setup().
  [[nodiscard]] const std::vector<std::string>& classes() const;

 private:
  [[nodiscard]] const std::vector<std::string>& known_classes() const;
  [[nodiscard]] std::shared_ptr<ImageFolder> folder(const std::string& root, bool augmented,
                                                    bool needs_classes = true) const;
  [[nodiscard]] std::shared_ptr<Loader> loader(const std::shared_ptr<ImageFolder>& images, const at::Tensor& rows,
                                               bool is_training) const;

  ImageFolderDataOptions options_;
  mutable std::vector<std::string> classes_ = {};  // none: unknown
  bool predicts_ = false;
  std::shared_ptr<ImageFolder> train_ = nullptr;
  std::shared_ptr<ImageFolder> val_ = nullptr;  // null if nothing is held out
  std::shared_ptr<ImageFolder> test_ = nullptr;
  at::Tensor train_rows_ = {};  // (n) int64, of train_; undefined: all
  at::Tensor val_rows_ = {};    // (n) int64, of val_; undefined: all
};

}  // namespace levin
