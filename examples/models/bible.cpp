#include "bible.h"

#include <cstdlib>
#include <filesystem>
#include <set>

#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/data/text/text_reader.h"
#include "levin/loggers/csv_table.h"

LEVIN_REGISTER_DATA(BibleText, "the King James Bible as blocks of tokens: TextFile on Debian's bible-kjv-text");
LEVIN_REGISTER_DATA(BibleVerses,
                    "the verses of the King James Bible and their testament or book: TextCsv on bible-kjv-text");

namespace {

constexpr size_t kBooksOfOldTestament = 39;

// The Bible Retrieval System's file: "EC02", a title, at byte 84 the size of a window and their number, at byte 92 the
// offset of each window and of the end, all big-endian, and then one run of compress data, which is returned.
std::string compressed_part(const std::string& path, const std::string& bytes) {
  const auto fail = [&](size_t position, const std::string& what) {
    throw levin::DataError(path + ": byte " + std::to_string(position) + ": " + what + ". Download the file again.");
  };
  const auto number_at = [&](size_t position) {
    uint32_t number = 0;
    for (size_t i = 0; i < 4; ++i) number = number << 8 | static_cast<uint8_t>(bytes[position + i]);
    return number;
  };
  constexpr size_t kCount = 88;
  if (bytes.size() < kCount + 4) fail(bytes.size(), "the file ends too early: expected a header");
  const uint64_t windows = number_at(kCount);
  const uint64_t data = kCount + 4 + (windows + 1) * 4;
  if (bytes.size() < data) {
    fail(kCount, "the file ends too early: expected a table of " + levin::count_of(windows, "window"));
  }
  const uint64_t end = number_at(data - 4);
  if (end != bytes.size()) {
    fail(data - 4, "expected the size of the file, " + std::to_string(bytes.size()) + ", saw " + std::to_string(end));
  }
  if (bytes.compare(data, 2, "\x1f\x9d") != 0) fail(data, "expected compress data (1f 9d and a byte of flags)");
  return bytes.substr(data);
}

// "1Sa3:10 And the LORD came, …" as testament, book, verse, text: the book precedes the chapter.
std::string csv_row(const std::string& line, size_t number, std::set<std::string>& books) {
  const size_t colon = line.find(':'), blank = line.find(' ');
  size_t chapter = colon;
  while (chapter != std::string::npos && chapter > 0 && line[chapter - 1] >= '0' && line[chapter - 1] <= '9') --chapter;
  if (colon == std::string::npos || blank == std::string::npos || blank < colon || chapter == 0 || chapter == colon) {
    throw levin::DataError(bible_path() + ":" + std::to_string(number) +
                           ": expected a verse as \"Ge1:1 In the beginning …\", saw \"" + levin::cut_text(line) +
                           "\".");
  }
  const std::string book = line.substr(0, chapter);
  books.insert(book);
  return std::string(books.size() > kBooksOfOldTestament ? "new," : "old,") + book + "," +
         line.substr(chapter, blank - chapter) + "," + levin::csv_field(line.substr(blank + 1)) + "\n";
}

}  // namespace

std::string bible_path() {
  const char* home = std::getenv("LEVIN_HOME");
  const std::string kept = home == nullptr ? "" : std::string(home) + "/datasets/bible.data";
  std::error_code ignored;
  return std::filesystem::is_regular_file(kept, ignored) ? kept : "/usr/lib/bible.data";
}

std::string bible_text(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw levin::DataError(path + ": no such file. Install Debian's bible-kjv-text, or set the data's .path.");
  }
  std::string bytes = levin::read_text(path);
  if (!bytes.starts_with("EC02Compressed")) return bytes;
  return levin::unpack_text(path + ", compress data", compressed_part(path, bytes));
}

std::string BibleText::read_document() const {
  return options().path.empty() ? bible_text() : TextFile::read_document();
}

std::string BibleVerses::read_document(const std::string& path) const {
  if (!path.empty()) return TextCsv::read_document(path);
  if (options().delimiter != "," || !options().header) {
    throw levin::ConfigError("BibleVerses: without a .path, .delimiter must be \",\" and .header true.");
  }
  const std::string text = bible_text();
  std::string csv = "testament,book,verse,text\n";
  std::set<std::string> books;
  size_t number = 2;  // the first line is the title
  for (size_t begin = text.find('\n') + 1; begin != 0 && begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) csv += csv_row(text.substr(begin, end - begin), number, books);
    begin = end + 1;
  }
  return csv;
}
