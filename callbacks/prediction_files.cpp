#include "levin/callbacks/prediction_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <utility>

#include "levin/core/options/error.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr size_t kBufferBytes = 1 << 20;

std::string bytes_of(const SpoolBlock& block) {
  const int64_t numbers[] = {
      block.key.dataloader_idx,         block.key.loader, block.key.batch, block.rows, block.shape,
      static_cast<int64_t>(block.bytes)};
  return {reinterpret_cast<const char*>(numbers), sizeof numbers};
}

}  // namespace

UnfinishedFile::UnfinishedFile(std::string path) : path_(std::move(path)), file_(path_) {
  if (file_.error() != 0) fail();
}

void UnfinishedFile::write_through(std::string_view bytes) {
  if (!file_.write(std::as_bytes(std::span(bytes)))) fail();
}

void UnfinishedFile::write(std::string_view bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() <= kBufferBytes) {
    buffer_ += bytes;
  } else {
    write_through(bytes);
  }
}

void UnfinishedFile::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void UnfinishedFile::finish() {
  flush();
  if (!file_.finish(/*sync=*/true)) fail();
}

void UnfinishedFile::fail() const {
  throw Error("PredictionWriter: " + path_ + " cannot be written: " + system_error_text(file_.error()) +
              ". Make room, or give another output.");
}

void Spool::append(const BlockKey& key, int64_t rows, int64_t shape, std::string_view bytes) {
  file_.write(bytes_of({key, rows, shape, bytes.size()}));
  file_.write(bytes);
}

void Spool::append(const BlockKey& key, int64_t rows, const std::vector<std::string>& pieces) {
  uint64_t bytes = 0;
  for (const std::string& piece : pieces) bytes += piece.size();
  file_.write(bytes_of({key, rows, 0, bytes}));
  for (const std::string& piece : pieces) file_.write(piece);
}

struct SpoolReader::Source {
  explicit Source(const std::string& path) : name(path), buffer(kBufferBytes) {
    file.rdbuf()->pubsetbuf(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    file.open(path, std::ios::binary);
    if (!file.is_open()) fail(system_error_text(errno));
  }

  void read(char* to, uint64_t bytes) {
    if (!file.read(to, static_cast<std::streamsize>(bytes))) fail("it ends early");
  }

  // A stream that seeks drops its buffer.
  void skip(uint64_t bytes) {
    const auto count = static_cast<std::streamoff>(bytes);
    bytes < kBufferBytes ? file.ignore(count) : file.seekg(count, std::ios::cur);
  }

  void read_header() {
    is_at_end = file.peek() == std::ifstream::traits_type::eof();
    if (is_at_end) return;
    int64_t numbers[6];
    read(reinterpret_cast<char*>(numbers), sizeof numbers);
    block = {{numbers[0], numbers[1], numbers[2]}, numbers[3], numbers[4], static_cast<uint64_t>(numbers[5])};
  }

  [[noreturn]] void fail(const std::string& cause) const {
    throw Error("PredictionWriter: " + name + ", in which a rank keeps its predictions, cannot be read: " + cause +
                ". Predict again.");
  }

  std::string name;
  std::vector<char> buffer;
  std::ifstream file;
  SpoolBlock block = {};
  bool is_at_end = true;
};

SpoolReader::SpoolReader(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    sources_.push_back(std::make_unique<Source>(path));
    sources_.back()->read_header();
  }
}

SpoolReader::~SpoolReader() = default;

bool SpoolReader::next(SpoolBlock& block) {
  if (left_ > 0) sources_[current_]->skip(left_);
  if (has_block_) sources_[current_]->read_header();
  left_ = 0;
  has_block_ = false;
  for (size_t k = 0; k < sources_.size(); ++k) {
    if (sources_[k]->is_at_end) continue;
    if (has_block_ && sources_[current_]->block.key <= sources_[k]->block.key) continue;
    current_ = k;
    has_block_ = true;
  }
  if (!has_block_) return false;
  block = sources_[current_]->block;
  left_ = block.bytes;
  return true;
}

void SpoolReader::copy(const std::function<void(std::string_view)>& take) {
  std::string piece;
  while (left_ > 0) {
    piece.resize(std::min<uint64_t>(left_, kBufferBytes));
    sources_[current_]->read(piece.data(), piece.size());
    left_ -= piece.size();
    take(piece);
  }
}

void remove_unfinished(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string(), name = fs::path(path).filename().string();
  for (const std::string& each : names_in(folder.empty() ? "." : folder)) {
    if (is_temporary_name(each) && each.starts_with(name + ".tmp-")) {
      remove_if_abandoned({(fs::path(folder) / each).string()});
    }
  }
}

}  // namespace levin
