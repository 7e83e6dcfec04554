// Values that several formats store in the same way.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "levin/data/images/image_transforms.h"
#include "levin/data/streams/sample_builder.h"
#include "levin/data/streams/shard_file.h"

namespace levin::streams {

/// Returns the rest of the field as a tensor of these sizes, copied. Throws DataError unless it has exactly the bytes
/// that they need; a bool is true for every byte other than 0.
[[nodiscard]] at::Tensor array_of(FieldBytes& bytes, at::ScalarType type, const std::vector<int64_t>& sizes);
/// Returns the rest of the field as a tensor of one dimension.
[[nodiscard]] at::Tensor row_of(FieldBytes& bytes, at::ScalarType type);
/// Returns a tensor without dimensions.
[[nodiscard]] at::Tensor scalar_of(int64_t value);
[[nodiscard]] at::Tensor scalar_of(double value);
[[nodiscard]] at::Tensor scalar_of(bool value);

/// Returns the array of a .npy file.
[[nodiscard]] at::Tensor npy_of(FieldBytes& bytes);

/// Returns the rest of the field as text. Throws DataError if it is not UTF-8.
[[nodiscard]] std::string text_of(FieldBytes& bytes);
/// Return the number that the rest of the field spells, as Python's int() and float() read it. Throw DataError for any
/// other text, and for an integer that does not fit into 64 bits.
[[nodiscard]] int64_t int_text_of(FieldBytes& bytes);
[[nodiscard]] double float_text_of(FieldBytes& bytes);

/// Returns the pixels of a JPEG, PNG or WebP image, (3, H, W) uint8, or the part of them that `view` takes with
/// sample_generator().
[[nodiscard]] at::Tensor image_of(FieldBytes& bytes, const ImageView& view);
/// Returns the pixels of an uncompressed image as mosaicml-streaming and litdata store PIL's: width, height and the
/// length of the mode, each uint32, then mode and pixels. Grey is repeated and alpha dropped, as image_of() does.
[[nodiscard]] at::Tensor raw_image_of(FieldBytes& bytes, const ImageView& view);
/// Returns the part that `view` takes of an array of pixels, (3, H, W) uint8, and any other array as it is.
[[nodiscard]] at::Tensor part_of(const at::Tensor& array, const FieldBytes& bytes, const ImageView& view);
/// Returns the images of a list: their number and sizes, each uint32, then their bytes.
template <class Decode>
[[nodiscard]] std::vector<at::Tensor> image_list_of(FieldBytes& bytes, const Decode& decode) {
  const auto count = bytes.number<uint32_t>("the number of images");
  FieldBytes sizes = bytes.part(uint64_t{count} * sizeof(uint32_t), "the images' sizes");
  std::vector<at::Tensor> images;
  while (sizes.left() > 0) {
    FieldBytes image = bytes.part(sizes.number<uint32_t>("an image's size"), "an image");
    images.push_back(decode(image));
  }
  bytes.expect_end();
  return images;
}

/// Adds what the JSON in the rest of the field stands for: () bool, int64 or float64 for a value, a tensor for lists of
/// numbers, a list of tensors for lists of lists that differ in length, text for strings, "NAME.KEY" for the members of
/// an object, nothing for null. Other lists become text, their JSON. `name` may be "" for an object: its members then
/// are the fields. NaN, Infinity and -Infinity are read as Python writes them. Throws DataError for what is not JSON,
/// nests deeper than 100 values, or has integers that do not fit into 64 bits.
void add_json(SampleBuilder& sample, const std::string& name, FieldBytes& bytes);

}  // namespace levin::streams
