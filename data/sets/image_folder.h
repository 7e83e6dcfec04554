// A folder of images with a sub-folder for each class, as torchvision's ImageFolder:
//
//   root/cat/1.jpg   root/cat/more/2.png   root/dog/3.jpeg
//
//   auto cats = std::make_shared<levin::ImageFolder>("root", levin::ImageFolderOptions{.view = {.size = 64}});
//   levin::DataLoader loader(cats, {.batch_size = 64, .num_workers = 2}, nullptr, levin::image_collate());
//
// Files are read when they are needed, each by the thread that fetches its sample.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/data/images/image_transforms.h"
#include "levin/data/loading/batch_fetcher.h"
#include "levin/data/loading/dataset.h"

namespace levin {

/// What happens to an image that cannot be read: the run ends with the error, or the batch has a sample fewer.
enum class OnImageError { raise, skip };
template <>
struct EnumNames<OnImageError> {
  static constexpr EnumName<OnImageError> names[] = {{"raise", OnImageError::raise}, {"skip", OnImageError::skip}};
};

/// Options of ImageFolder.
struct ImageFolderOptions {
  std::vector<std::string> classes = {};  // in the order of their numbers; none: the sub-folders, sorted
  ImageView view = {};
  bool flip = false;  // a third tensor, () bool, says at random whether image_batch() mirrors the sample
  OnImageError on_error = OnImageError::raise;
  bool needs_classes = true;  // false: images may also lie outside of the classes' folders, and then none has a class
};

/// The images of a folder. Samples: the image, (3, H, W) uint8, and its class, () int64; see `flip` for a third tensor.
/// Random numbers are a function of seed, epoch and sample. With OnImageError::skip a sample that cannot be read has no
/// tensors. Without classes the image is the only tensor.
class ImageFolder final : public Dataset {
 public:
  /// Lists the files that end in .jpg, .jpeg, .png or .webp, in any case, in all folders below the class folders; other
  /// files are skipped. Throws DataError without classes, if a class has no images or a sub-folder is not one of the
  /// given `classes`, some of which may be missing. Without needs_classes, throws only without images.
  explicit ImageFolder(std::string root, ImageFolderOptions options = {});

  [[nodiscard]] int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  [[nodiscard]] Batch get(int64_t index) const override;
  /// Returns the file's name below the root: "cat/1.jpg".
  [[nodiscard]] std::string sample_id(int64_t index) const override {
    return files_.at(static_cast<size_t>(index)).name;
  }

  /// Names of the classes in the order of their numbers.
  [[nodiscard]] const std::vector<std::string>& classes() const { return classes_; }
  [[nodiscard]] std::string path(int64_t index) const {
    return root_ + "/" + files_.at(static_cast<size_t>(index)).name;
  }
  /// -1: it has none.
  [[nodiscard]] int64_t label(int64_t index) const { return files_.at(static_cast<size_t>(index)).label; }
  /// Files that could not be read so far.
  [[nodiscard]] int64_t skipped() const;

 private:
  struct File {
    std::string name;  // below root
    int32_t label;
  };
  void list_classes();
  void list_all();
  void skip(const std::string& path, const std::string& error) const;

  std::string root_;
  ImageFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
  mutable std::mutex mutex_;               // guards skipped_
  mutable std::set<std::string> skipped_;  // paths
};

/// image_batch() as a loader's collate function.
[[nodiscard]] Collate image_collate(ColourScale scale = {});

}  // namespace levin
