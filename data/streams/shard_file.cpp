#include "levin/data/streams/shard_file.h"

namespace levin::streams {

namespace {

constexpr const char* kAgain = ". Copy the shard again, or write it again.";

}  // namespace

void ShardFile::fail(uint64_t byte, const std::string& what) const {
  throw DataError(path_ + ": byte " + std::to_string(byte) + ": " + what + kAgain);
}

void ShardFile::fail_end(uint64_t offset, uint64_t count, const char* what) const {
  fail(offset, "the file ends too early: expected " + count_of(static_cast<int64_t>(count), "byte") + " of " + what +
                   ", and the file has " + count_of(static_cast<int64_t>(size()), "byte"));
}

void check_sample_index(const std::string& path, int64_t index, int64_t size) {
  if (index >= 0 && index < size) return;
  throw DataError(path + ": there is no sample " + std::to_string(index) + ": the shard has " +
                  count_of(size, "sample") + ".");
}

std::string_view FieldBytes::take(uint64_t count, const char* what) {
  if (count > left()) {
    fail(std::string("the ") + (field_.empty() ? "sample" : "field") + " ends too early: expected " +
         count_of(static_cast<int64_t>(count), "byte") + " of " + what + ", and " + std::to_string(left()) +
         (left() == 1 ? " is left" : " are left"));
  }
  const std::string_view taken = bytes_.substr(at_, count);
  at_ += count;
  return taken;
}

void FieldBytes::expect_end() const {
  if (left() == 0) return;
  fail(std::string("expected the end of the ") + (field_.empty() ? "sample" : "field") + ", found " +
       count_of(static_cast<int64_t>(left()), "more byte", "more bytes"));
}

std::string FieldBytes::where() const {
  return file_.path() + ": sample " + std::to_string(sample_) + (field_.empty() ? "" : ", field " + cut_text(field_));
}

void FieldBytes::fail(const std::string& what) const {
  const auto byte = static_cast<uint64_t>(bytes_.data() - file_.all().data()) + at_;
  throw DataError(where() + ", byte " + std::to_string(byte) + ": " + what + kAgain);
}

void FieldBytes::refuse(const std::string& what) const {
  throw DataError(where() + ": " + what);
}

}  // namespace levin::streams
