// libFuzzer target: an input is a byte that selects a crop and sizes, and an image file. For any bytes, the image is
// decoded, cropped and resized to the size that was asked for, or DataError names the file, and libpng, libjpeg and the
// decoders stay within the memory of their tensors.
//
// A wrong checksum of a chunk would stop libpng, so the mutator below repairs them.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/sum.h>
#include <zlib.h>

#include <cstring>

#include "fuzz_support.h"
#include "guarded_memory.h"
#include "levin/core/options/error.h"
#include "levin/data/images/image_decoder.h"
#include "levin/data/images/image_transforms.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace levin::fuzz {
namespace {

constexpr size_t kMaxBytes = 128 << 20;
constexpr int64_t kMaxImagePixels = 1 << 20;

ImageView view_of(uint8_t choice) {
  ImageView view;
  view.crop = choice % 3 == 0 ? ImageCrop::none : choice % 3 == 1 ? ImageCrop::center : ImageCrop::random;
  view.size = 1 + choice / 3 % 5 * 9;
  view.shorter_side = choice / 15 % 3 * 16;
  view.scaled_decoding = choice / 45 % 2 == 0;
  view.max_pixels = kMaxImagePixels;
  return view;
}

void check_error(const std::string& message, const std::string& path) {
  expect(message.find(path) != std::string::npos, "an error names the file", message);
  expect(message.size() < 2000, "a message is not endless", message);
  check_planted(message, "ends too early");
}

uint32_t number_at(const std::string& file, size_t at) {
  uint32_t value = 0;
  for (size_t k = 0; k < 4; ++k) value = value << 8 | static_cast<uint8_t>(file[at + k]);
  return value;
}

void repair_checksums(std::string& file) {
  if (!file.starts_with("\x89PNG")) return;
  for (size_t at = 8; at + 12 <= file.size();) {
    const size_t length = number_at(file, at);
    if (length > file.size() - at - 12) return;
    const auto* chunk = reinterpret_cast<const Bytef*>(file.data() + at + 4);
    const auto checksum = static_cast<uint32_t>(::crc32_z(0, chunk, length + 4));
    for (size_t k = 0; k < 4; ++k) file[at + 8 + length + k] = static_cast<char>(checksum >> (24 - 8 * k));
    at += length + 12;
  }
}

}  // namespace

void run_one(std::string_view input) {
  static const ScratchFile file;
  ++Counts::instance().inputs;
  if (input.empty()) return;
  const ImageView view = view_of(static_cast<uint8_t>(input[0]));
  file.write(input.substr(1));
  GuardedMemory::install().set_budget(kMaxBytes);
  at::set_num_threads(1);
  try {
    const auto decoder = open_image(file.path(), kMaxImagePixels);
    const ImageSize size = decoder->size();
    const at::Tensor pixels = decoder->decode();
    expect(pixels.sizes() == at::IntArrayRef({3, size.height, size.width}), "all pixels are decoded");
    (void)pixels.sum();
    ++Counts::instance().whole;
  } catch (const DataError& error) {
    check_error(error.what(), file.path());
  }
  try {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
    const at::Tensor image = read_image(file.path(), view, generator);
    expect(image.sizes() == at::IntArrayRef({3, view.size, view.size}), "an image has the size that was asked for");
    (void)image.sum();
  } catch (const DataError& error) {
    check_error(error.what(), file.path());
  }
}

void begin() {
  Counts::print_at_exit();
}

}  // namespace levin::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (size < 2 || seed % 8 == 0) return size;
  std::string file(reinterpret_cast<const char*>(data) + 1, size - 1);
  levin::fuzz::repair_checksums(file);
  std::memcpy(data + 1, file.data(), file.size());
  return size;
}
