#include "models/bible.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>

#include "levin/core/files/checksum.h"
#include "levin/core/options/error.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::bible_test {
namespace {

using test::error_of;
using test::holds;
using test::TemporaryFolder;

// Skips where Debian's package bible-kjv-text is not installed.
#define NEED_BIBLE() \
  if (!std::filesystem::exists(bible_path())) GTEST_SKIP() << "bible-kjv-text is not installed"

// The checksums were taken from the output of `bible -f Gen1:1-Rev22:21` (the package's own program) and of `gzip -dc`
// on the file's compress data; the first lacks the title line.
TEST(BibleText, IsTheWholeTextOfDebiansPackage) {
  NEED_BIBLE();
  const std::string text = bible_text();
  EXPECT_EQ(text.size(), 4404475U);
  const auto md5 = [](const std::string& bytes) {
    Hasher hasher(Checksum::Kind::md5);
    hasher.update(std::as_bytes(std::span(bytes)));
    return hasher.hex();
  };
  EXPECT_EQ(md5(text), "8f8417fabe6cd377d89cfa08b888638c");
  const size_t title = text.find('\n') + 1;
  EXPECT_EQ(md5(text.substr(title)), "347edc0f3658f7bfc979db479f2a3dcb");
  EXPECT_TRUE(text.substr(title).starts_with("Ge1:1 In the beginning God created the heaven and the earth.\n"));
}

TEST(BibleText, NamesFileAndByteOfDamage) {
  NEED_BIBLE();
  const TemporaryFolder folder;
  std::ifstream file(bible_path(), std::ios::binary);
  const std::string packed{std::istreambuf_iterator<char>(file), {}};
  const auto message = [&](const std::string& bytes) {
    const std::string path = folder.write("bad", bytes);
    return error_of<DataError>([&] { (void)bible_text(path); });
  };
  EXPECT_TRUE(holds(message(packed.substr(0, 200)), {"/bad: byte 88", "a table of 68 windows"}));
  EXPECT_TRUE(holds(message(packed.substr(0, 5000)), {"expected the size of the file, 5000, saw 1740565"}));
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)bible_text(folder / "none"); }), {"none", "bible-kjv-text"}));
}

TEST(BibleText, NamesDamageInCompressData) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& data) {  // after a header and a table of 0 windows
    const std::string sizes{'\0', '\0', '\0', '\0', '\0', '\0', '\0', static_cast<char>(96 + data.size())};
    const std::string header = "EC02Compressed" + std::string(88 - 14, ' ');
    const std::string path = folder.write("bad", header + sizes + data);
    return error_of<DataError>([&] { (void)bible_text(path); });
  };
  EXPECT_TRUE(holds(message("\x1f\x8b\x90"), {"/bad: byte 96: expected compress data (1f 9d and a byte of flags)"}));
  EXPECT_TRUE(holds(message(""), {"/bad: byte 96: expected compress data"}));
  EXPECT_TRUE(holds(message("\x1f\x9d\x05"), {"/bad, compress data: byte 2: expected codes of 9 to 16 bits, saw 5"}));
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)bible_text(folder.path()); }), {folder.path(), "directory"}));
}

TEST(BibleText, ReadsADifferentTextIfAPathIsSet) {
  const TemporaryFolder folder;
  BibleText data({.path = folder.write("a.txt", std::string(100, 'a')), .block_size = 9, .val_fraction = 0});
  data.setup(Stage::fit);
  EXPECT_EQ(data.train_dataloader()->num_batches(), 1);
}

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

// The books of the King James Bible: 39 and 27, 23145 and 7957 verses.
TEST(BibleVerses, HasTestamentsAndBooks) {
  NEED_BIBLE();
  BibleVerses testaments({.label = "testament", .max_length = 12, .batch_size = 40000, .val_fraction = 0});
  testaments.setup(Stage::fit);
  EXPECT_EQ(testaments.classes(), (std::vector<std::string>{"new", "old"}));
  const auto loader = testaments.train_dataloader();
  loader->start(0, 0);
  Batch batch;
  ASSERT_TRUE(loader->next(batch));
  const auto labels = numbers(batch[1]);
  EXPECT_EQ(labels.size(), 31102U);
  EXPECT_EQ(std::count(labels.begin(), labels.end(), 1), 23145);
  const auto ids = numbers(batch[0]);
  std::set<int64_t> in_the_beginning;  // the testaments: Genesis and John
  for (size_t i = 0; i < labels.size(); ++i) {
    const std::string text = testaments.tokenizer().decode(std::span<const int64_t>(ids.data() + i * 12, 12));
    if (text == "In the beg") in_the_beginning.insert(labels[i]);
  }
  EXPECT_EQ(in_the_beginning.size(), 2U);
  EXPECT_FALSE(loader->next(batch));
  BibleVerses books({.label = "book", .max_length = 12});
  books.setup(Stage::fit);
  EXPECT_EQ(books.classes().size(), 66U);
  EXPECT_TRUE(holds(error_of<ConfigError>([] { BibleVerses({.header = false}).setup(Stage::fit); }), {".header"}));
}

}  // namespace
}  // namespace levin::bible_test
