// The King James Bible as data: 31102 verses from Debian's package bible-kjv-text.
//
//   data: {class_path: BibleText, init_args: {block_size: 128, batch_size: 16}}      # blocks of tokens
//   data: {class_path: BibleVerses, init_args: {label: testament, max_length: 256}}  # verses, their testament or book
#pragma once

#include <string>

#include "levin/data/sets/text.h"
#include "levin/data/sets/text_csv.h"

/// Returns datasets/bible.data below LEVIN_HOME if that file exists, else where Debian's package keeps its archive.
std::string bible_path();

/// Returns the archive's text: a title and a line for each verse, 4,404,475 bytes. Throws levin::DataError if there is
/// no archive, or naming the byte where it is damaged.
std::string bible_text(const std::string& path = bible_path());

/// levin::TextFile, reading the Bible unless `path` names another text.
class BibleText : public levin::TextFile {
 public:
  using TextFile::TextFile;

 protected:
  [[nodiscard]] std::string read_document() const override;
};

/// levin::TextCsv, reading rows of testament (old, new), book, verse and text unless `path` names another file.
class BibleVerses : public levin::TextCsv {
 public:
  using TextCsv::TextCsv;

 protected:
  [[nodiscard]] std::string read_document(const std::string& path) const override;
};
