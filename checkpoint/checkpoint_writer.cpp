#include "levin/checkpoint/checkpoint_writer.h"

#include <ATen/ops/empty.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/files/files.h"
#include "levin/core/process/console.h"
#include "levin/core/process/log.h"
#include "levin/core/process/rank_status.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

// Created under a temporary name and renamed, so that the link exists at any time. Relative, because the folder may be
// moved.
void write_link(const std::string& path, const std::string& target) {
  std::error_code missing;
  if (!fs::exists(target, missing))
    throw CheckpointError("checkpoint " + path + ": there is no " + target + " to link to.");
  check_replaceable(path);
  std::error_code code;
  for (int tries = 0; tries < 3; ++tries) {  // a link cannot be locked: it may be taken for a leftover
    const std::string temporary = temporary_name(path);
    fs::create_symlink(fs::path(target).lexically_relative(fs::path(path).parent_path()), temporary, code);
    if (!code) fs::rename(temporary, path, code);
    std::error_code ignored;
    if (code) fs::remove(temporary, ignored);
    if (!code) return;
  }
  if (code) throw CheckpointError("checkpoint " + path + ": cannot link it to " + target + ": " + code.message() + ".");
}

void write_one(const CheckpointRequest& request) {
  if (!request.folder.empty() && !is_inside(request.path, request.folder)) {
    throw CheckpointError("saving checkpoint " + request.path + ": a link on the way leads out of " + request.folder +
                          ". Remove the link, or save under a different name.");
  }
  make_checkpoint_folder(request.path);
  if (request.shard) return write_sharded_checkpoint(request.path, request.state, *request.shard);
  const SaveInProgress saving;
  if (request.link_to.empty()) {
    write_single_checkpoint(request.path, request.state);
  } else {
    write_link(request.path, request.link_to);
  }
}

uint64_t size_of(const std::string& path) {
  std::error_code code;
  if (!fs::is_directory(path, code)) return fs::file_size(path, code);
  uint64_t sum = 0;
  for (fs::directory_iterator at(path, code), end; !code && at != end; at.increment(code)) {
    const auto size = at->file_size(code);
    if (!code) sum += size;
  }
  return sum;
}

void log_written(const CheckpointRequest& request, std::chrono::steady_clock::time_point started) {
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
  if (request.link_to.empty()) {
    log::checkpoint.info("wrote {}: {} bytes in {:.2f} s", request.path, size_of(request.path), took.count());
  } else {
    log::checkpoint.debug("linked {} to {}", request.path, request.link_to);
  }
}

// Removes the subfolders of `root` that a removed file leaves empty.
void remove_empty_folders(const std::string& path, const std::string& root) {
  const std::string start = (fs::path(root) / "").string();
  for (fs::path at = fs::path(path).parent_path(); at.string().starts_with(start); at = at.parent_path()) {
    if (::rmdir(at.c_str()) != 0) return;  // it is not empty, or a link
  }
}

// Files that cannot be removed are reported and left: the new file is good.
void remove_obsolete(const CheckpointRequest& request) {
  for (const std::string& path : request.obsolete) {
    const std::string problem = remove_checkpoint(path);
    if (!problem.empty()) Console::instance().warn("ModelCheckpoint: cannot remove " + path + ": " + problem + ".");
    if (!request.folder.empty()) remove_empty_folders(path, request.folder);
  }
}

}  // namespace

CheckpointWriter::~CheckpointWriter() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// Copies of the tensors, in memory that the next save overwrites.
State CheckpointWriter::staged(const State& state) {
  State copy;
  copy.values = state.values;
  for (const auto& [name, tensor] : state.tensors) {
    const void* data = tensor.defined() ? tensor.const_data_ptr() : nullptr;
    const auto earlier = copied_.find(data);
    if (data != nullptr && earlier != copied_.end() && earlier->second.strides == tensor.strides() &&
        earlier->second.copy.sizes() == tensor.sizes() && earlier->second.copy.scalar_type() == tensor.scalar_type()) {
      copy.tensors[name] = earlier->second.copy;
      continue;
    }
    at::Tensor& buffer = staging_[name];
    const bool fits = buffer.defined() && tensor.defined() && buffer.sizes() == tensor.sizes() &&
                      buffer.scalar_type() == tensor.scalar_type() && buffer.use_count() == 1;
    if (!fits) buffer = at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
    buffer.copy_(tensor.detach());
    if (data != nullptr) copied_[data] = {buffer, tensor.strides().vec()};
    copy.tensors[name] = buffer;
  }
  return copy;
}

void CheckpointWriter::submit(std::vector<CheckpointRequest> requests, std::vector<std::string> sync_first) {
  if (requests.empty()) return;
  finish();
  const bool shards =
      std::any_of(requests.begin(), requests.end(), [](const auto& one) { return one.shard.has_value(); });
  if (!writes_ && !shards) {  // another rank does: here they are complete at once
    Group done;
    done.errors.resize(requests.size());
    done.requests = std::move(requests);
    return report(std::move(done));
  }
  auto group = std::make_shared<Group>();
  group->sync_first = std::move(sync_first);
  group->errors.resize(requests.size());
  bool wait = false;
  copied_.clear();  // also what a submit that threw has left, whose tensors may have changed since
  for (CheckpointRequest& request : requests) {
    request.state = staged(request.state);
    wait = wait || !request.asynchronous;
  }
  copied_.clear();
  group->requests = std::move(requests);
  if (!start_thread()) {  // the system gives no more threads: training waits for this save
    write(*group);
    return report(std::move(*group));
  }
  {
    const std::lock_guard lock(mutex_);
    waiting_ = std::move(group);
    busy_ = true;
  }
  changed_.notify_all();
  if (wait) finish();
}

bool CheckpointWriter::start_thread() {
  if (thread_.joinable()) return true;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    Console::instance().warn(std::string("checkpoints: no thread could be started to write in the background (") +
                             error.what() + "), so training waits while this one is written.");
    return false;
  }
  return true;
}

void CheckpointWriter::write(Group& group) const {
  for (const std::string& path : group.sync_first) sync_file(path);
  for (size_t k = 0; k < group.requests.size(); ++k) {
    try {
      const bool writes = writes_ || group.requests[k].shard;
      const auto started = std::chrono::steady_clock::now();
      if (writes) write_one(group.requests[k]);
      if (writes) log_written(group.requests[k], started);
    } catch (const std::exception& error) {
      group.errors[k] = error.what();
      log::checkpoint.record(log::Level::error, group.errors[k]);
    }
    if (group.errors[k].empty()) remove_obsolete(group.requests[k]);
    group.requests[k].state = State();  // gives the buffers back
  }
}

void CheckpointWriter::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || waiting_ != nullptr; });
    if (waiting_ == nullptr) return;  // a stop completes waiting jobs first
    std::shared_ptr<Group> group = std::move(waiting_);
    lock.unlock();
    write(*group);
    lock.lock();
    finished_ = std::move(group);
    busy_ = false;
    changed_.notify_all();
  }
}

void CheckpointWriter::report(Group group) {
  for (size_t k = 0; k < group.requests.size(); ++k) {
    if (group.requests[k].done) group.requests[k].done(group.errors[k]);
  }
}

void CheckpointWriter::poll() {
  std::shared_ptr<Group> group;
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || finished_ == nullptr) return;
    group = std::move(finished_);
  }
  report(std::move(*group));
}

void CheckpointWriter::finish() {
  std::shared_ptr<Group> group;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !busy_; });
    group = std::move(finished_);
  }
  if (group != nullptr) report(std::move(*group));
}

}  // namespace levin
