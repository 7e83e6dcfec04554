#include "levin/core/storage/s3_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/files/url_text.h"
#include "levin/core/files/xml_tree.h"
#include "levin/core/process/log.h"
#include "levin/core/process/start_thread.h"
#include "levin/core/storage/http_store.h"
#include "levin/core/storage/s3_client.h"

namespace levin {

namespace {

constexpr uint64_t kPartBytes = 16 << 20;  // at least, of an upload in parts; S3 wants 5 MiB
constexpr uint64_t kMaxParts = 10000;
constexpr size_t kUploadThreads = 4;

// A key with "/" at its end stands for a folder in Amazon's console.
bool is_folder_mark(const std::string& key) {
  return key.empty() || key.ends_with('/');
}

// encoding-type=url writes a space as "+".
std::string decoded_key(std::string key) {
  std::replace(key.begin(), key.end(), '+', ' ');
  return url_decoded(key);
}

std::string unquoted(std::string etag) {
  std::erase(etag, '"');
  return etag;
}

class S3Store : public ObjectStore {
 public:
  S3Store(const std::string& bucket, std::string prefix, const FetchLimits& limits, const Variables& variables)
      : bucket_(bucket), prefix_(std::move(prefix)), client_(bucket, variables, limits) {
    if (!prefix_.empty() && !prefix_.ends_with('/')) prefix_ += '/';
  }

  [[nodiscard]] std::string url(const std::string& key) const override {
    return "s3://" + bucket_ + "/" + prefix_ + key;
  }

  [[nodiscard]] std::optional<StoredObject> find(const std::string& key) const override {
    const HttpAnswer answer =
        client_.send(call("HEAD", key), "read " + url(key), "s3:GetObject",
                     [](const HttpAnswer& got, int64_t) { return got.is_success() || got.status == 404; });
    if (!answer.is_success()) return std::nullopt;
    return StoredObject{key, answer.content_length.value_or(0), strong_etag(answer)};
  }

  [[nodiscard]] std::vector<StoredObject> list(const std::string& prefix) const override;

  [[nodiscard]] std::string read(const std::string& key, uint64_t offset,
                                 std::optional<uint64_t> length) const override {
    S3Client::Signed ready;
    return read_range({"read " + url(key), client_.fix(), offset, length,
                       [&](const std::string& range) {
                         S3Call get = call("GET", key);
                         if (!range.empty()) get.headers["range"] = range;
                         ready = client_.sign(get);
                         return ready.request;
                       },
                       [&](const HttpAnswer& answer, uint64_t received) {
                         return client_.failed(ready, answer, "s3:GetObject", received);
                       }},
                      client_.limits());
  }

  void fetch(const std::string& key, const std::string& path, const std::atomic<bool>* abandoned) const override {
    S3Client::Signed ready;
    ObjectTransfer transfer;
    transfer.action = "fetch " + url(key) + " to " + path;
    transfer.fix = client_.fix();
    transfer.path = path;
    transfer.etag_is_md5 = true;
    transfer.abandoned = abandoned;
    transfer.request = [&](uint64_t offset, const std::string& validator) {
      S3Call get = call("GET", key);
      get.abandoned = abandoned;
      if (offset == 0) {
        get.headers["x-amz-checksum-mode"] = "ENABLED";
      } else {
        get.headers["range"] = "bytes=" + std::to_string(offset) + "-";
        get.headers[validator.starts_with('"') ? "if-match" : "if-unmodified-since"] = validator;
      }
      ready = client_.sign(get);
      return ready.request;
    };
    transfer.failed = [&](const HttpAnswer& answer, uint64_t received) {
      return client_.failed(ready, answer, "s3:GetObject", received);
    };
    fetch_object(transfer, client_.limits());
  }

  void put(const std::string& key, std::string_view bytes) override {
    S3Call call_ = call("PUT", key);
    call_.body = bytes;
    (void)client_.send(call_, "write " + url(key), "s3:PutObject");
  }

  [[nodiscard]] bool put_if_absent(const std::string& key, std::string_view bytes) override {
    S3Call call_ = call("PUT", key);
    call_.body = bytes;
    call_.headers["if-none-match"] = "*";
    call_.sent_once = true;
    int64_t attempts = 0;
    const HttpAnswer answer =
        client_.send(call_, "write " + url(key), "s3:PutObject", [&](const HttpAnswer& got, int64_t attempt) {
          attempts = attempt;
          return got.is_success() || got.status == 412;
        });
    if (answer.is_success()) return true;
    return attempts > 1 && read(key, 0, std::nullopt) == bytes;  // the answer to an earlier attempt was lost
  }

  void put_file(const std::string& key, const std::string& path, const std::atomic<bool>* abandoned) override;

  void remove(const std::string& key) override {
    (void)client_.send(call("DELETE", key), "remove " + url(key), "s3:DeleteObject",
                       [](const HttpAnswer& got, int64_t) {
                         return got.is_success() || (got.status == 404 && S3Client::code_of(got) != "NoSuchBucket");
                       });
  }

 private:
  [[nodiscard]] S3Call call(const std::string& method, const std::string& key) const {
    if (key.empty() || key.find('\0') != std::string::npos) {
      throw StorageError("the key \"" + cut_text(key) + "\" does not name an object below " + url("") +
                         ". A key is the name that follows this URL, such as \"train/00001.mds\".");
    }
    S3Call result;
    result.method = method;
    result.key = prefix_ + key;
    return result;
  }

  void upload_parts(int fd, uint64_t size, const std::string& key, const std::string& path,
                    const std::atomic<bool>* abandoned);

  std::string bucket_;
  std::string prefix_;  // "" or "a/b/"
  mutable S3Client client_;
};

std::vector<StoredObject> S3Store::list(const std::string& prefix) const {
  std::vector<StoredObject> found;
  S3Call call;
  call.query = {{"list-type", "2"}, {"prefix", prefix_ + prefix}, {"encoding-type", "url"}};
  const std::string action = "list " + url(prefix);
  while (true) {
    const HttpAnswer answer = client_.send(call, action, "s3:ListBucket");
    XmlElement page;
    try {
      page = read_xml(answer.body);
    } catch (const Error& error) {
      throw StorageError("cannot " + action + ": the server's answer is malformed: " + error.what() + " " +
                         client_.fix());
    }
    if (page.name != "ListBucketResult") {
      throw StorageError("cannot " + action + ": expected a ListBucketResult, got \"" + cut_text(page.name) + "\". " +
                         client_.fix());
    }
    const bool is_encoded = page.text_of("EncodingType") == "url";
    for (const XmlElement& each : page.elements) {
      if (each.name != "Contents") continue;
      const std::string name = is_encoded ? decoded_key(each.text_of("Key")) : each.text_of("Key");
      if (!name.starts_with(prefix_) || is_folder_mark(name)) continue;
      StoredObject object{name.substr(prefix_.size()), 0, unquoted(each.text_of("ETag"))};
      const std::string size = each.text_of("Size");
      if (std::from_chars(size.data(), size.data() + size.size(), object.size).ptr != size.data() + size.size()) {
        throw StorageError("cannot " + action + ": the size of \"" + cut_text(name) + "\" is \"" + cut_text(size) +
                           "\", expected a number. " + client_.fix());
      }
      found.push_back(std::move(object));
    }
    const std::string next = page.text_of("NextContinuationToken");
    if (page.text_of("IsTruncated") != "true") break;
    if (next.empty() || next == call.query["continuation-token"]) {
      throw StorageError("cannot " + action + ": the list is cut after " +
                         count_of(static_cast<int64_t>(found.size()), "object") +
                         ", and the server does not say how it continues. " + client_.fix());
    }
    call.query["continuation-token"] = next;
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  return found;
}

[[noreturn]] void fail_to_read(const std::string& path, const std::string& cause) {
  throw StorageError("cannot read " + path + ": " + cause + ". Check the path and its permissions.");
}

std::string file_part(int fd, const std::string& path, uint64_t offset, uint64_t length) {
  std::string bytes(length, '\0');
  for (size_t done = 0; done < length;) {
    const ssize_t got = ::pread(fd, bytes.data() + done, length - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_to_read(path, system_error_text(errno));
    if (got == 0) fail_to_read(path, "it was shortened while it was read");
    done += static_cast<size_t>(got);
  }
  return bytes;
}

void S3Store::put_file(const std::string& key, const std::string& path, const std::atomic<bool>* abandoned) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) fail_to_read(path, system_error_text(errno));
  if (!S_ISREG(info.st_mode)) fail_to_read(path, "it is not a regular file");
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > kPartBytes) return upload_parts(file.get(), size, key, path, abandoned);
  S3Call put = call("PUT", key);
  put.body = file_part(file.get(), path, 0, size);
  put.abandoned = abandoned;
  (void)client_.send(put, "write " + path + " to " + url(key), "s3:PutObject");
}

// An upload in parts: begun, and either completed, or its parts are removed.
class MultipartUpload {
 public:
  MultipartUpload(S3Client& client, S3Call call, std::string action)
      : client_(client), call_(std::move(call)), action_(std::move(action)) {
    S3Call begin = call_;
    begin.method = "POST";
    begin.query = {{"uploads", ""}};
    begin.headers["content-type"] = "application/octet-stream";
    const HttpAnswer answer = client_.send(begin, action_, "s3:PutObject");
    try {
      id_ = read_xml(answer.body).text_of("UploadId");
    } catch (const Error&) {
      id_ = "";
    }
    if (id_.empty())
      throw StorageError("cannot " + action_ + ": the server's answer has no UploadId. " + client_.fix());
  }

  ~MultipartUpload() {
    if (is_complete_) return;
    try {
      S3Call abort = call_;
      abort.method = "DELETE";
      abort.query = {{"uploadId", id_}};
      abort.abandoned = nullptr;
      (void)client_.send(abort, "remove the parts of an unfinished upload (" + action_ + ")", "s3:AbortMultipartUpload",
                         [](const HttpAnswer& got, int64_t) { return got.is_success() || got.status == 404; });
    } catch (const std::exception& error) {
      log::data.warn("{} A lifecycle rule AbortIncompleteMultipartUpload removes such parts.", error.what());
    }
  }
  MultipartUpload(const MultipartUpload&) = delete;
  MultipartUpload& operator=(const MultipartUpload&) = delete;

  /// Returns the part's etag. `number` counts from 1.
  std::string put_part(uint64_t number, std::string bytes, const std::atomic<bool>* abandoned) {
    S3Call put = call_;
    put.method = "PUT";
    put.query = {{"partNumber", std::to_string(number)}, {"uploadId", id_}};
    put.body = std::move(bytes);
    put.abandoned = abandoned;
    const HttpAnswer answer = client_.send(put, action_, "s3:PutObject");
    return answer.header("etag");
  }

  /// `is_there` tells whether the object exists in its new form: after an answer to the request was lost.
  void complete(const std::vector<std::string>& etags, const std::function<bool()>& is_there) {
    S3Call end = call_;
    end.method = "POST";
    end.query = {{"uploadId", id_}};
    end.headers["content-type"] = "application/xml";
    end.patience = Seconds(300);  // the server puts the parts together
    end.body = "<CompleteMultipartUpload>";
    for (size_t i = 0; i < etags.size(); ++i) {
      end.body +=
          "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>" + xml_text(etags[i]) + "</ETag></Part>";
    }
    end.body += "</CompleteMultipartUpload>";
    (void)client_.send(end, action_, "s3:PutObject", [&](const HttpAnswer& got, int64_t) {
      if (S3Client::code_of(got) == "NoSuchUpload") return is_there();
      return got.is_success() && S3Client::code_of(got).empty();  // an error may come with status 200
    });
    is_complete_ = true;
  }

 private:
  S3Client& client_;
  S3Call call_;
  std::string action_;
  std::string id_;
  bool is_complete_ = false;
};

void S3Store::upload_parts(int fd, uint64_t size, const std::string& key, const std::string& path,
                           const std::atomic<bool>* abandoned) {
  const uint64_t part_bytes = std::max(kPartBytes, (size / kMaxParts + (1 << 20)) & ~uint64_t{(1 << 20) - 1});
  const uint64_t parts = (size + part_bytes - 1) / part_bytes;
  const std::optional<StoredObject> before = find(key);
  MultipartUpload upload(client_, call("POST", key), "write " + path + " to " + url(key));
  std::vector<std::string> etags(parts);
  std::atomic<uint64_t> next = 0;
  std::atomic<bool> stopped = false;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (uint64_t i = next++; i < parts && !stopped; i = next++) {
        const uint64_t offset = i * part_bytes;
        etags[i] = upload.put_part(i + 1, file_part(fd, path, offset, std::min(part_bytes, size - offset)), abandoned);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      stopped = true;
    }
  };
  std::vector<std::thread> threads;
  try {
    while (threads.size() + 1 < std::min<uint64_t>(kUploadThreads, parts)) {
      threads.push_back(start_thread("uploads a part of a file", work));
    }
  } catch (const Error&) {  // the others do it
  }
  work();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  upload.complete(etags, [&] {
    const std::optional<StoredObject> now = find(key);
    return now && now->size == size && (!before || now->etag != before->etag);
  });
}

}  // namespace

std::shared_ptr<ObjectStore> open_s3_store(const std::string& url, const FetchLimits& limits,
                                           const Variables& variables) {
  constexpr std::string_view scheme = "s3://";
  const std::string rest = url.substr(std::min(url.size(), scheme.size()));
  const std::string bucket = rest.substr(0, rest.find('/'));
  if (!url.starts_with(scheme) || bucket.empty()) {
    throw ConfigError("\"" + cut_text(url) + "\" does not name a bucket. Write s3://bucket/prefix.");
  }
  if (bucket.find_first_of("@:?#%") != std::string::npos) {
    throw ConfigError(
        "an s3:// URL has a bucket and a prefix alone, such as s3://bucket/prefix. Credentials belong in "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and a server in AWS_ENDPOINT_URL_S3.");
  }
  const std::string prefix = bucket.size() < rest.size() ? rest.substr(bucket.size() + 1) : "";
  return std::make_shared<S3Store>(bucket, prefix, limits, variables);
}

}  // namespace levin

extern "C" void levin_open_remote_store(const std::string& url, const levin::FetchLimits& limits,
                                        std::shared_ptr<levin::ObjectStore>& store) {
  store = url.starts_with("s3://") ? levin::open_s3_store(url, limits) : levin::open_http_store(url, limits);
}
