#include "levin/core/storage/transfer.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <random>
#include <thread>
#include <utility>

#include "levin/core/files/write_remedy.h"
#include "levin/core/process/log.h"
#include "levin/core/storage/new_file.h"

namespace levin {

namespace {

constexpr Seconds kMaxPause(20);
constexpr Seconds kMaxWish(120);                      // of a server's Retry-After
constexpr uint64_t kProgressBytes = 256 << 10;        // of an attempt, which then does not count as one of several
constexpr uint64_t kMaxReserved = uint64_t{1} << 30;  // of memory, before the bytes arrive

// Between half of `span` and the whole.
Seconds jittered(Seconds span) {
  static thread_local std::minstd_rand random(std::random_device{}());
  return span * (0.5 + 0.5 * std::generate_canonical<double, 32>(random));
}

void pause_for(Seconds span, const std::atomic<bool>* abandoned) {
  const auto end = std::chrono::steady_clock::now() + span;
  while (!(abandoned != nullptr && *abandoned) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::min<Seconds>(Seconds(0.1), end - std::chrono::steady_clock::now()));
  }
}

// "bytes 5-9/20".
struct ContentRange {
  uint64_t first = 0;
  uint64_t last = 0;
  std::optional<uint64_t> total{};
};

std::optional<ContentRange> content_range(const HttpAnswer& answer) {
  const std::string text = answer.header("content-range");
  ContentRange range;
  const char* const end = text.data() + text.size();
  if (!text.starts_with("bytes ")) return std::nullopt;
  auto result = std::from_chars(text.data() + 6, end, range.first);
  if (result.ec != std::errc() || result.ptr == end || *result.ptr != '-') return std::nullopt;
  result = std::from_chars(result.ptr + 1, end, range.last);
  if (result.ec != std::errc() || result.ptr == end || *result.ptr != '/' || range.last < range.first)
    return std::nullopt;
  uint64_t total = 0;
  if (std::from_chars(result.ptr + 1, end, total).ec == std::errc()) range.total = total;
  return range;
}

// What identifies the version of an object in If-Range and If-Match.
std::string validator_of(const HttpAnswer& answer) {
  const std::string etag = answer.header("etag");
  if (!etag.empty() && !etag.starts_with("W/")) return etag;
  return answer.header("last-modified");
}

// One transfer: a file that grows over several attempts.
class Arrival {
 public:
  Arrival(const ObjectTransfer& transfer, const FetchLimits& limits)
      : transfer_(transfer), limits_(limits), file_(transfer.path), own_(transfer.checksum.kind) {}

  Attempt attempt() {
    if (file_.error() != 0) return {"cannot create a file in its folder: " + system_error_text(file_.error())};
    if (validator_.empty()) start_anew();
    const uint64_t before = received_;
    HttpRequest request = transfer_.request(received_, validator_);
    request.max_answer = transfer_.max_bytes - std::min(transfer_.max_bytes, received_);
    request.receiver = [&](std::span<const std::byte> piece, const HttpAnswer& answer) {
      if (!begun_ && !begin(answer)) return false;
      received_ += piece.size();
      if (!file_.write(piece)) return false;
      if (!transfer_.checksum.hex.empty()) own_.update(piece);
      if (announced_hasher_) announced_hasher_->update(piece);
      if (transfer_.progress) transfer_.progress(received_, total_);
      return true;
    };
    begun_ = false;
    unusable_.clear();
    const HttpAnswer answer = http_request(request);
    const Attempt outcome = outcome_of(answer);
    if (outcome.cause.empty()) return outcome;
    Attempt failed = outcome;
    failed.has_progress = failed.is_passing && !validator_.empty() && received_ >= before + kProgressBytes;
    return failed;
  }

  [[nodiscard]] uint64_t received() const { return received_; }

 private:
  void start_anew() {
    if (received_ > 0 && !file_.clear()) return;
    received_ = 0;
    total_.reset();
    validator_.clear();
    own_ = Hasher(transfer_.checksum.kind);
    announced_ = {};
    announced_hasher_.reset();
  }

  // The first bytes of an answer have come. Returns false if they cannot continue the file.
  bool begin(const HttpAnswer& answer) {
    begun_ = true;
    if (answer.status == 206) {
      const auto range = content_range(answer);
      if (!range || range->first != received_) {
        unusable_ = "it sent the range \"" + cut_text(answer.header("content-range")) +
                    "\" instead of the bytes from " + std::to_string(received_) + " on";
        return false;
      }
      total_ = range->total;
      return true;
    }
    start_anew();  // the whole object: the server has no ranges, or the object has changed
    total_ = answer.content_length;
    validator_ = validator_of(answer);
    announced_ = announced_checksum(answer, transfer_.etag_is_md5);
    if (!announced_.hex.empty()) announced_hasher_.emplace(announced_.kind);
    return file_.error() == 0;
  }

  [[nodiscard]] Attempt cannot_write() const {
    return {.cause = "cannot write it: " + system_error_text(file_.error()), .fix = write_remedy(file_.error())};
  }

  Attempt outcome_of(const HttpAnswer& answer) {
    if (answer.failure == HttpFailure::receiver && !unusable_.empty()) {
      validator_.clear();
      return {"the server's answer cannot be used: " + unusable_, true};
    }
    if (answer.failure == HttpFailure::receiver) return cannot_write();
    if (answer.failure == HttpFailure::too_long)
      return {"the answer is longer than " + std::to_string(transfer_.max_bytes) + " bytes"};
    if (answer.failure == HttpFailure::none && (answer.status == 412 || answer.status == 416) && received_ > 0) {
      validator_.clear();
      return {"the object has changed while it was read", true};
    }
    if (answer.failure != HttpFailure::none || !answer.is_success()) return transfer_.failed(answer, received_);
    if (!begun_ && !begin(answer)) return cannot_write();  // an empty object
    if (total_ && received_ != *total_) {
      return {"the connection ended after " + std::to_string(received_) + " of " + std::to_string(*total_) + " bytes",
              true};
    }
    for (auto [expected, hasher, source] :
         {std::tuple(&transfer_.checksum, &own_, ""),
          std::tuple(std::as_const(announced_).hex.empty() ? nullptr : &std::as_const(announced_),
                     announced_hasher_ ? &*announced_hasher_ : nullptr, "the server's ")}) {
      if (expected == nullptr || expected->hex.empty()) continue;
      const std::string got = hasher->hex();
      if (got == expected->hex) continue;
      validator_.clear();
      return {"the wrong bytes came (" + std::to_string(received_) + " of them): expected " + source +
                  checksum_name(expected->kind) + " " + expected->hex + ", got " + got,
              *source != '\0'};
    }
    if (!file_.finish(limits_.sync)) return cannot_write();
    return {};
  }

  const ObjectTransfer& transfer_;
  const FetchLimits& limits_;
  NewFile file_;
  Hasher own_;
  Checksum announced_;
  std::optional<Hasher> announced_hasher_;
  uint64_t received_ = 0;
  std::optional<uint64_t> total_;
  std::string validator_;  // of the bytes so far; "": they cannot be continued
  std::string unusable_;
  bool begun_ = false;
};

}  // namespace

void repeat_attempts(const FetchLimits& limits, const std::string& action, const std::string& fix,
                     const std::atomic<bool>* abandoned, const std::function<Attempt()>& attempt) {
  Seconds pause = limits.first_pause;
  if (abandoned == nullptr) abandoned = limits.abandoned;
  const auto check = [&] {
    if (abandoned != nullptr && *abandoned) throw StorageError("cannot " + action + ": it was cancelled.");
  };
  for (int64_t i = 1;; ++i) {
    check();
    const Attempt outcome = attempt();
    if (outcome.cause.empty()) return;
    check();
    if (outcome.has_progress) {
      i = 1;
      pause = limits.first_pause;
    }
    if (!outcome.is_passing || i >= limits.attempts) {
      throw StorageError("cannot " + action + ": " + outcome.cause + " (attempt " + std::to_string(i) + " of " +
                         std::to_string(limits.attempts) + "). " + (outcome.fix.empty() ? fix : outcome.fix));
    }
    if (outcome.at_once) continue;
    const Seconds wait = std::max(jittered(pause), std::min(outcome.retry_after.value_or(Seconds(0)), kMaxWish));
    log::data.info("attempt {} of {} to {} has failed: {}; the next in {} s", i, limits.attempts, action, outcome.cause,
                   short_number(wait.count(), 2));
    pause_for(wait, abandoned);
    pause = std::min(pause * 2, std::max(kMaxPause, limits.first_pause));
  }
}

HttpRequest limited_request(const FetchLimits& limits, const std::atomic<bool>* abandoned) {
  HttpRequest request;
  request.connect_timeout = request.timeout = limits.stall_timeout;
  request.min_speed = limits.min_speed;
  if (abandoned == nullptr) abandoned = limits.abandoned;
  if (abandoned != nullptr) request.cancelled = [abandoned] { return abandoned->load(); };
  return request;
}

Attempt failed_attempt(const HttpAnswer& answer, uint64_t received_bytes, const std::string& description) {
  if (answer.failure != HttpFailure::none) {
    return {"the connection failed after " + std::to_string(received_bytes) + " bytes: " + answer.problem,
            answer.failure == HttpFailure::network};
  }
  Attempt failed{"the server answered HTTP status " + std::to_string(answer.status) +
                     (description.empty() ? "" : ", " + description),
                 answer.is_passing()};
  failed.retry_after = answer.retry_after;
  return failed;
}

std::string strong_etag(const HttpAnswer& answer) {
  const std::string etag = answer.header("etag");
  if (etag.starts_with("W/")) return "";
  return etag.size() >= 2 && etag.front() == '"' && etag.back() == '"' ? etag.substr(1, etag.size() - 2) : etag;
}

Checksum announced_checksum(const HttpAnswer& answer, bool etag_is_md5) {
  using Kind = Checksum::Kind;
  const auto from_base64 = [](Kind kind, const std::string& text) {
    return Checksum{kind, hex_text(base64_decoded(text))};
  };
  if (answer.header("x-amz-checksum-type") != "COMPOSITE") {  // of the parts' sums
    for (const auto& [kind, name] :
         {std::pair(Kind::crc64nvme, "x-amz-checksum-crc64nvme"), std::pair(Kind::crc32c, "x-amz-checksum-crc32c"),
          std::pair(Kind::crc32, "x-amz-checksum-crc32"), std::pair(Kind::sha256, "x-amz-checksum-sha256"),
          std::pair(Kind::sha1, "x-amz-checksum-sha1")}) {
      const std::string text = answer.header(name);
      if (!text.empty() && text.find('-') == std::string::npos) return from_base64(kind, text);
    }
  }
  if (const std::string md5 = answer.header("content-md5"); !md5.empty()) return from_base64(Kind::md5, md5);
  const std::string etag = strong_etag(answer);
  const std::string encryption = answer.header("x-amz-server-side-encryption");
  const bool is_md5 = etag_is_md5 && etag.size() == 32 &&
                      etag.find_first_not_of("0123456789abcdef") == std::string::npos &&
                      (encryption.empty() || encryption == "AES256") &&
                      answer.header("x-amz-server-side-encryption-customer-algorithm").empty();
  return {Kind::md5, is_md5 ? etag : ""};
}

void fetch_object(const ObjectTransfer& transfer, const FetchLimits& limits) {
  Arrival arrival(transfer, limits);
  repeat_attempts(limits, transfer.action, transfer.fix, transfer.abandoned, [&] { return arrival.attempt(); });
}

std::string read_range(const RangeRead& range, const FetchLimits& limits) {
  std::string bytes;
  if (range.length == 0) return bytes;
  std::string text;
  if (range.offset > 0 || range.length) {
    text = "bytes=" + std::to_string(range.offset) + "-";
    if (range.length) text += std::to_string(range.offset + std::min(*range.length, UINT64_MAX - range.offset) - 1);
  }
  repeat_attempts(limits, range.action, range.fix, nullptr, [&]() -> Attempt {
    bytes.clear();
    bool ignored = false;
    HttpRequest request = range.request(text);
    request.max_answer = uint64_t{1} << 40;
    request.receiver = [&](std::span<const std::byte> piece, const HttpAnswer& answer) {
      ignored = !text.empty() && answer.status != 206 && range.offset > 0;
      if (ignored) return false;
      if (bytes.empty())
        bytes.reserve(std::min({answer.content_length.value_or(0), range.length.value_or(UINT64_MAX), kMaxReserved}));
      const uint64_t rest = range.length ? *range.length - bytes.size() : UINT64_MAX;
      bytes.append(reinterpret_cast<const char*>(piece.data()), std::min<uint64_t>(piece.size(), rest));
      return piece.size() <= rest;  // a server without ranges sends more
    };
    const HttpAnswer answer = http_request(request);
    if (ignored) {
      Attempt failed{"the server sends the whole object instead of a part of it"};
      failed.fix = "Use a server that answers requests with a range, such as nginx, Apache or S3.";
      return failed;
    }
    if (answer.failure == HttpFailure::receiver && bytes.size() == range.length) return {};
    if (answer.failure == HttpFailure::none && answer.status == 416) {  // the object ends before the range
      bytes.clear();
      return {};
    }
    if (answer.failure != HttpFailure::none || !answer.is_success()) return range.failed(answer, bytes.size());
    if (const auto got = content_range(answer); answer.status == 206 && (!got || got->first != range.offset)) {
      return {
          "the server sent the range \"" + cut_text(answer.header("content-range")) + "\" instead of \"" + text + "\"",
          true};
    }
    return {};
  });
  return bytes;
}

}  // namespace levin
