#include "levin/data/sets/image_folder.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "levin/core/options/error.h"
#include "levin/core/process/log.h"
#include "levin/data/loading/sample_generator.h"
#include "levin/data/loading/skipped_sample.h"
#include "levin/data/sets/csv_columns.h"

namespace levin {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxWarnings = 10;

bool is_image(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png" || ending == ".webp";
}

std::vector<std::string> sub_folders(const std::string& root) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Whether a link leads to a folder that it is in: below it there would be no end.
bool leads_up(const fs::path& link) {
  const fs::path target = fs::canonical(link), place = fs::canonical(link.parent_path());
  return std::mismatch(target.begin(), target.end(), place.begin(), place.end()).first == target.end();
}

// Below `root`, in torchvision's order: folder by folder, sorted by their whole paths, and the files of each by name.
std::vector<std::string> images_below(const std::string& root, const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> found;
  fs::recursive_directory_iterator all(fs::path(root) / folder, fs::directory_options::follow_directory_symlink);
  for (; all != fs::recursive_directory_iterator(); ++all) {
    const fs::directory_entry& entry = *all;
    if (entry.is_symlink() && entry.is_directory() && leads_up(entry.path())) all.disable_recursion_pending();
    if (!is_image(entry.path()) || !entry.is_regular_file()) continue;
    found.emplace_back(entry.path().parent_path().lexically_relative(root).string(), entry.path().filename().string());
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (const auto& [place, name] : found) names.push_back(place == "." ? name : place + "/" + name);
  return names;
}

// That of the root in which the file is; "": none.
std::string sub_folder(const std::string& name) {
  const size_t slash = name.find('/');
  return slash == std::string::npos ? "" : name.substr(0, slash);
}

at::Tensor number(int64_t value) {
  at::Tensor tensor = at::empty({}, at::TensorOptions().dtype(at::kLong));
  *tensor.mutable_data_ptr<int64_t>() = value;
  return tensor;
}

at::Tensor coin(at::Generator& generator) {
  auto* random = at::check_generator<at::CPUGeneratorImpl>(generator);
  const std::lock_guard lock(random->mutex_);
  at::Tensor tensor = at::empty({}, at::TensorOptions().dtype(at::kBool));
  *tensor.mutable_data_ptr<bool>() = (random->random() & 1) != 0;
  return tensor;
}

}  // namespace

ImageFolder::ImageFolder(std::string root, ImageFolderOptions options)
    : root_(std::move(root)), options_(std::move(options)), classes_(options_.classes) {
  try {
    options_.needs_classes ? list_classes() : list_all();
  } catch (const fs::filesystem_error& error) {
    throw DataError(root_ + ": cannot list the images: " + error.code().message() + " (" + error.path1().string() +
                    "). Give a folder with a sub-folder of images for each class.");
  }
}

void ImageFolder::list_classes() {
  const std::vector<std::string> folders = sub_folders(root_);
  if (folders.empty()) {
    throw DataError(root_ + ": it has no sub-folders, expected one for each class, with images in it.");
  }
  if (classes_.empty()) classes_ = folders;
  for (const std::string& folder : folders) {
    const auto place = std::find(classes_.begin(), classes_.end(), folder);
    if (place == classes_.end()) {
      throw DataError(root_ + ": the sub-folder \"" + folder + "\" is none of the classes " + join(classes_) +
                      ". Rename or remove it.");
    }
    const auto label = static_cast<int32_t>(place - classes_.begin());
    const std::vector<std::string> names = images_below(root_, folder);
    if (names.empty()) {
      throw DataError(root_ + "/" + folder +
                      ": no file ends in .jpg, .jpeg, .png or .webp. Add images of this class, or " +
                      "remove the folder.");
    }
    for (const std::string& name : names) files_.push_back({name, label});
  }
}

// An image has the class of the sub-folder that it is in; if one image has none, none has.
void ImageFolder::list_all() {
  std::vector<std::string> names = images_below(root_, "");
  std::stable_sort(names.begin(), names.end(),
                   [](const std::string& a, const std::string& b) { return sub_folder(a) < sub_folder(b); });
  const detail::ClassNumbers numbers(classes_);
  for (const std::string& name : names) files_.push_back({name, static_cast<int32_t>(numbers.find(sub_folder(name)))});
  if (files_.empty())
    throw DataError(root_ + ": no file in it ends in .jpg, .jpeg, .png or .webp. Give a folder of images.");
  const bool all_have = std::all_of(files_.begin(), files_.end(), [](const File& file) { return file.label >= 0; });
  for (File& file : files_) file.label = all_have ? file.label : -1;
}

Batch ImageFolder::get(int64_t index) const {
  const std::string file = path(index);
  at::Generator& generator = sample_generator();
  try {
    Batch sample{read_image(file, options_.view, generator)};
    if (label(index) < 0) return sample;
    sample.tensors.push_back(number(label(index)));
    if (options_.flip) sample.tensors.push_back(coin(generator));
    return sample;
  } catch (const DataError& error) {
    if (options_.on_error == OnImageError::raise) throw;
    skip(file, error.what());
    return skipped_sample(error.what());
  }
}

void ImageFolder::skip(const std::string& path, const std::string& error) const {
  const std::lock_guard lock(mutex_);
  if (!skipped_.insert(path).second || skipped_.size() > kMaxWarnings) return;
  log::data.warn("left out: {}", error);
}

int64_t ImageFolder::skipped() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(skipped_.size());
}

Collate image_collate(ColourScale scale) {
  return [scale](std::vector<Batch> samples) { return image_batch(samples, scale); };
}

}  // namespace levin
