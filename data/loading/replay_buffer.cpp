#include "levin/data/loading/replay_buffer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/random.h"
#include "levin/data/loading/gather_rows.h"

namespace levin {

namespace {

constexpr uint64_t kReplayStream = 0x7265706c6179;  // a loader with the same seed draws different numbers

// The shape and type of one row of a batch's tensor: "[4] Float".
std::string row_text(const at::Tensor& rows) {
  std::ostringstream text;
  text << rows.sizes().slice(1) << " " << rows.scalar_type();
  return text.str();
}

std::string column_text(const std::string& name, size_t index) {
  return name.empty() ? "tensor " + std::to_string(index) : "field \"" + cut_text(name) + "\"";
}

// Throws for what a row cannot be: other fields than tensors, reserved names.
void check_row_fields(const std::string& where, const Batch& rows) {
  if (rows.tensors.empty()) throw DataError(where + "the row has no tensors.");
  if (rows.structure() == nullptr) return;
  for (const auto& field : rows.structure()->fields) {
    if (field.kind != FieldKind::tensor) {
      throw DataError(where + column_text(field.name, 0) +
                      " is not a tensor. Give one tensor of a fixed shape for each field.");
    }
    if (field.name == "ids" || field.name == "weights") {
      throw DataError(where + column_text(field.name, 0) + " is reserved for batches of sample(). Rename the field.");
    }
  }
  if (rows.structure()->fields.size() == rows.tensors.size()) return;
  throw DataError(where + "the row has " + count_of(static_cast<int64_t>(rows.tensors.size()), "tensor") + " and " +
                  count_of(static_cast<int64_t>(rows.structure()->fields.size()), "name") +
                  ". Name all tensors or none.");
}

std::vector<int64_t> sizes_for(const at::Tensor& rows, int64_t capacity) {
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes[0] = capacity;
  return sizes;
}

at::Tensor empty_int64(int64_t count) {
  return at::empty({count}, at::TensorOptions().dtype(at::kLong));
}

// What State throws, with the buffer's name in front.
template <class Read>
auto read_saved(Read read) {
  try {
    return read();
  } catch (const CheckpointError& error) {
    throw CheckpointError(std::string("ReplayBuffer: ") + error.what());
  }
}

}  // namespace

ReplayBuffer::ReplayBuffer(ReplayBufferOptions options) : options_(checked(options, "ReplayBufferOptions")) {
  rows_.beta = options_.beta;
  if (options_.prioritized) rows_.priorities.emplace(options_.capacity);
}

int64_t ReplayBuffer::add(const Batch& row) {
  Batch one = row;
  for (at::Tensor& tensor : one.tensors) {
    if (tensor.defined()) tensor = tensor.detach().unsqueeze(0);
  }
  return insert("ReplayBuffer.add: ", one);
}

int64_t ReplayBuffer::add_many(const Batch& rows) {
  return insert("ReplayBuffer.add_many: ", rows);
}

int64_t ReplayBuffer::insert(const std::string& where, const Batch& rows) {
  const c10::InferenceMode plain(false);  // the buffer outlives the caller's mode, in which an agent often acts
  const at::NoGradGuard no_grad;
  check_row_fields(where, rows);
  const std::lock_guard lock(mutex_);
  const std::vector<Column> added = in_column_order(where, rows);
  const int64_t count = count_rows(where, added), first = rows_.added;
  if (count == 0) return first;
  if (rows_.columns.empty()) allocate(added);
  check_like_first(where, added);
  write(added, count);
  return first;
}

// Returns the row's tensors in the order of the columns, matched by name; unchanged if there are no columns yet.
std::vector<ReplayBuffer::Column> ReplayBuffer::in_column_order(const std::string& where, const Batch& rows) const {
  std::vector<std::string> wanted;
  for (const Column& column : rows_.columns) wanted.push_back(column.name);
  if (wanted.empty()) wanted = rows.structure() == nullptr ? std::vector<std::string>(rows.count()) : rows.names();
  std::vector<Column> added;
  for (size_t k = 0; k < wanted.size(); ++k) {
    const bool is_there = wanted[k].empty() ? rows.structure() == nullptr && k < rows.count() : rows.has(wanted[k]);
    if (!is_there) throw DataError(where + column_text(wanted[k], k) + " of the first row is missing.");
    added.push_back({wanted[k], wanted[k].empty() ? rows.tensors[k] : rows[std::string_view(wanted[k])]});
  }
  if (rows.count() == wanted.size()) return added;
  throw DataError(where + "the row has " + count_of(static_cast<int64_t>(rows.count()), "tensor") +
                  (rows.structure() == nullptr ? "" : " (" + join(rows.names()) + ")") + " but the first row has " +
                  std::to_string(wanted.size()) + ".");
}

int64_t ReplayBuffer::count_rows(const std::string& where, const std::vector<Column>& added) {
  for (size_t k = 0; k < added.size(); ++k) {
    const at::Tensor& rows = added[k].rows;
    const std::string who = where + column_text(added[k].name, k);
    if (!rows.defined()) throw DataError(who + " is an undefined tensor.");
    if (rows.layout() != at::kStrided) throw DataError(who + " is not a dense tensor. Call to_dense().");
    if (rows.dim() == 0) throw DataError(who + " has no batch dimension. Use add() for a single row.");
    if (rows.size(0) == added[0].rows.size(0)) continue;
    throw DataError(who + " has " + count_of(rows.size(0), "row") + " but the first tensor has " +
                    std::to_string(added[0].rows.size(0)) + ".");
  }
  return added[0].rows.size(0);
}

void ReplayBuffer::allocate(const std::vector<Column>& added) {
  std::vector<Column> columns;
  for (const auto& [name, rows] : added) {
    const auto type = at::TensorOptions().dtype(rows.scalar_type());
    columns.push_back({name, at::empty(sizes_for(rows, options_.capacity), type)});
  }
  rows_.columns = std::move(columns);
}

void ReplayBuffer::check_like_first(const std::string& where, const std::vector<Column>& added) const {
  for (size_t k = 0; k < added.size(); ++k) {
    const at::Tensor &rows = added[k].rows, &own = rows_.columns[k].rows;
    if (rows.sizes().slice(1) == own.sizes().slice(1) && rows.scalar_type() == own.scalar_type()) continue;
    throw DataError(where + column_text(added[k].name, k) + " is " + row_text(rows) + " in this row and " +
                    row_text(own) + " in the first. Give rows of the same shapes and types.");
  }
}

void ReplayBuffer::write(const std::vector<Column>& added, int64_t count) {
  for (int64_t done = 0; done < count;) {
    const int64_t position = rows_.added % options_.capacity;
    const int64_t length = std::min(count - done, options_.capacity - position);
    for (size_t k = 0; k < added.size(); ++k) {
      rows_.columns[k].rows.narrow(0, position, length).copy_(added[k].rows.narrow(0, done, length));
    }
    for (int64_t i = 0; rows_.priorities && i < length; ++i) {
      rows_.priorities->set(position + i, raised(rows_.max_priority));
    }
    rows_.added += length;
    done += length;
  }
}

Batch ReplayBuffer::sample(int64_t batch_size) {
  if (batch_size < 1) {
    throw ConfigError("ReplayBuffer.sample: batch_size must be >= 1, got " + std::to_string(batch_size) + ".");
  }
  const c10::InferenceMode plain(false);
  const at::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  if (rows_.added == 0) throw DataError("ReplayBuffer.sample: the buffer is empty. Add rows first.");
  const at::Tensor positions = draw_positions(batch_size);
  std::vector<at::Tensor> tensors;
  std::vector<std::string> names;
  for (const Column& column : rows_.columns) {
    tensors.push_back(gather_rows(column.rows, positions));
    if (!column.name.empty()) names.push_back(column.name);
  }
  Batch batch = names.empty() ? Batch(std::move(tensors)) : Batch(std::move(tensors), BatchNames(names));
  batch.add({"ids", ids_at(positions)});
  if (rows_.priorities) batch.add({"weights", weights_at(positions)});
  return batch;
}

// splitmix64's stream: its only state is the number of draws.
double ReplayBuffer::next_uniform() {
  if (!draws_.seed) {
    const uint64_t seed = options_.seed < 0 ? default_seed() : static_cast<uint64_t>(options_.seed);
    draws_.seed = mix_seed(seed, kReplayStream);
  }
  return static_cast<double>(mix_seed(*draws_.seed, draws_.count++) >> 11) * 0x1p-53;
}

// By priority: draw k of n is uniform in the k-th of n equal parts of the sum (appendix B.2.1 of the paper).
at::Tensor ReplayBuffer::draw_positions(int64_t count) {
  at::Tensor positions = empty_int64(count);
  auto* position = positions.mutable_data_ptr<int64_t>();
  const auto held = static_cast<double>(rows_held());
  for (int64_t k = 0; k < count; ++k) {
    const double uniform = next_uniform();
    if (rows_.priorities) {
      const double part = (static_cast<double>(k) + uniform) / static_cast<double>(count);
      position[k] = rows_.priorities->find(part * rows_.priorities->total());
    } else {
      position[k] = static_cast<int64_t>(uniform * held);
    }
  }
  return positions;
}

at::Tensor ReplayBuffer::ids_at(const at::Tensor& positions) const {
  at::Tensor ids = empty_int64(positions.numel());
  const auto* position = positions.const_data_ptr<int64_t>();
  auto* id = ids.mutable_data_ptr<int64_t>();
  const int64_t newest = rows_.added - 1;
  for (int64_t k = 0; k < ids.numel(); ++k) id[k] = newest - (newest - position[k]) % options_.capacity;
  return ids;
}

at::Tensor ReplayBuffer::weights_at(const at::Tensor& positions) const {
  std::vector<double> all;
  const auto* position = positions.const_data_ptr<int64_t>();
  for (int64_t k = 0; k < positions.numel(); ++k) {
    const double probability = (*rows_.priorities)[position[k]] / rows_.priorities->total();
    all.push_back(std::pow(static_cast<double>(rows_held()) * probability, -rows_.beta));
  }
  const double largest = *std::max_element(all.begin(), all.end());
  at::Tensor weights = at::empty({positions.numel()}, at::TensorOptions().dtype(at::kFloat));
  auto* weight = weights.mutable_data_ptr<float>();
  for (size_t k = 0; k < all.size(); ++k) weight[k] = static_cast<float>(all[k] / largest);
  return weights;
}

double ReplayBuffer::raised(double priority) const {
  return std::pow(priority, options_.alpha);
}

void ReplayBuffer::update_priorities(const at::Tensor& ids, const at::Tensor& values) {
  const std::string where = "ReplayBuffer.update_priorities: ";
  if (!options_.prioritized) {
    throw ConfigError(where + "the buffer has no priorities. Set ReplayBufferOptions.prioritized.");
  }
  if (!ids.defined() || ids.dim() != 1 || ids.scalar_type() != at::kLong) {
    throw DataError(where + "ids must be a tensor (n) of int64. Pass the field \"ids\" of a batch of sample().");
  }
  if (!values.defined() || values.sizes() != ids.sizes() || !values.is_floating_point()) {
    throw DataError(where + "values must be a floating-point tensor (" + std::to_string(ids.numel()) +
                    "), one value for each id.");
  }
  const at::Tensor own_ids = ids.detach().cpu().contiguous();
  const at::Tensor own_values = values.detach().to(at::kCPU, at::kDouble).contiguous();
  const auto* id = own_ids.const_data_ptr<int64_t>();
  const auto* value = own_values.const_data_ptr<double>();
  const std::lock_guard lock(mutex_);
  for (int64_t k = 0; k < own_ids.numel(); ++k) {
    if (id[k] < 0 || id[k] >= rows_.added) {
      throw DataError(where + "there is no row with id " + std::to_string(id[k]) + ": " +
                      count_of(rows_.added, "row was", "rows were") + " added.");
    }
    if (std::isfinite(value[k])) continue;
    throw DataError(where + "the value of row " + std::to_string(id[k]) + " is " + short_number(value[k]) +
                    ". Pass finite numbers.");
  }
  for (int64_t k = 0; k < own_ids.numel(); ++k) {
    if (id[k] < rows_.added - rows_held()) continue;  // replaced since it was drawn
    const double priority = std::abs(value[k]) + options_.epsilon;
    rows_.max_priority = std::max(rows_.max_priority, priority);
    rows_.priorities->set(id[k] % options_.capacity, raised(priority));
  }
}

void ReplayBuffer::set_beta(double beta) {
  if (!(beta >= 0 && beta <= 1)) {
    throw ConfigError("ReplayBuffer.set_beta: must be from 0 to 1, got " + short_number(beta) + ".");
  }
  const std::lock_guard lock(mutex_);
  rows_.beta = beta;
}

int64_t ReplayBuffer::rows_held() const {
  return std::min(rows_.added, options_.capacity);
}

int64_t ReplayBuffer::size() const {
  const std::lock_guard lock(mutex_);
  return rows_held();
}

int64_t ReplayBuffer::added() const {
  const std::lock_guard lock(mutex_);
  return rows_.added;
}

State ReplayBuffer::state_dict() const {
  State state;
  const c10::InferenceMode plain(false);
  const std::lock_guard lock(mutex_);
  put_draws(state);
  state.set("capacity", options_.capacity);
  state.set("prioritized", options_.prioritized);
  state.set("added", rows_.added);
  state.set("beta", rows_.beta);
  std::vector<std::string> names;
  for (size_t k = 0; k < rows_.columns.size(); ++k) {
    names.push_back(rows_.columns[k].name);
    state.tensors["rows." + std::to_string(k)] = rows_.columns[k].rows.narrow(0, 0, rows_held()).clone();
  }
  state.set("names", names);
  if (!rows_.priorities) return state;
  state.set("max_priority", rows_.max_priority);
  at::Tensor priorities = at::empty({rows_held()}, at::TensorOptions().dtype(at::kDouble));
  auto* priority = priorities.mutable_data_ptr<double>();
  for (int64_t i = 0; i < rows_held(); ++i) priority[i] = (*rows_.priorities)[i];
  state.tensors["priorities"] = std::move(priorities);
  return state;
}

void ReplayBuffer::load_state_dict(const State& saved) {
  const c10::InferenceMode plain(false);
  const at::NoGradGuard no_grad;
  auto [rows, draws] = read_saved([&] { return std::pair(read_rows(saved), read_draws(saved)); });
  const std::lock_guard lock(mutex_);
  rows_ = std::move(rows);
  draws_ = draws;
}

ReplayBuffer::Rows ReplayBuffer::read_rows(const State& saved) const {
  const auto capacity = saved.get<int64_t>("capacity");
  if (capacity != options_.capacity || saved.get<bool>("prioritized") != options_.prioritized) {
    throw CheckpointError("the saved buffer has a capacity of " + std::to_string(capacity) + " and " +
                          (saved.get<bool>("prioritized") ? "" : "no ") +
                          "priorities, and this one has a capacity of " + std::to_string(options_.capacity) + " and " +
                          (options_.prioritized ? "" : "no ") + "priorities. Create it with the saved options.");
  }
  Rows rows{.added = saved.get<int64_t>("added"), .beta = saved.get<double>("beta")};
  const auto names = saved.get<std::vector<std::string>>("names");
  if (rows.added < 0 || names.empty() != (rows.added == 0) || !(rows.beta >= 0 && rows.beta <= 1)) {
    throw CheckpointError("the saved state is damaged: it has " + count_of(std::ssize(names), "column") + ", " +
                          count_of(rows.added, "row") + " and beta " + short_number(rows.beta) + ".");
  }
  const int64_t held = std::min(rows.added, capacity);
  for (size_t k = 0; k < names.size(); ++k) {
    const at::Tensor& from = saved.tensor("rows." + std::to_string(k));
    const bool is_double = std::count(names.begin(), names.end(), names[k]) > 1 && !names[k].empty();
    if (is_double || names[k].empty() != names[0].empty() || !from.defined() || from.layout() != at::kStrided ||
        from.dim() == 0 || from.size(0) != held) {
      throw CheckpointError("the saved state is damaged: " + column_text(names[k], k) +
                            " must have a name of its own " + "and a tensor with " + count_of(held, "row") + ".");
    }
    at::Tensor all = at::empty(sizes_for(from, capacity), at::TensorOptions().dtype(from.scalar_type()));
    all.narrow(0, 0, held).copy_(from);
    rows.columns.push_back({names[k], std::move(all)});
  }
  if (!options_.prioritized) return rows;
  rows.priorities = read_priorities(saved, held);
  rows.max_priority = saved.get<double>("max_priority");
  if (rows.max_priority > 0 && std::isfinite(rows.max_priority)) return rows;
  throw CheckpointError("the saved state is damaged: max_priority is " + short_number(rows.max_priority) + ".");
}

SumTree ReplayBuffer::read_priorities(const State& saved, int64_t held) const {
  const at::Tensor& from = saved.tensor("priorities");
  if (!from.defined() || from.dim() != 1 || from.size(0) != held || from.scalar_type() != at::kDouble) {
    throw CheckpointError("the saved state is damaged: \"priorities\" must be a tensor (" + std::to_string(held) +
                          ") of float64.");
  }
  const at::Tensor here = from.cpu().contiguous();
  const auto* priority = here.const_data_ptr<double>();
  SumTree tree(options_.capacity);
  for (int64_t i = 0; i < held; ++i) {
    if (!(priority[i] > 0 && std::isfinite(priority[i]))) {
      throw CheckpointError("the saved state is damaged: priority " + std::to_string(i) + " is " +
                            short_number(priority[i]) + ", and must be above 0.");
    }
    tree.set(i, priority[i]);
  }
  return tree;
}

State ReplayBuffer::draws_state() const {
  State state;
  const std::lock_guard lock(mutex_);
  put_draws(state);
  return state;
}

void ReplayBuffer::load_draws_state(const State& saved) {
  const Draws draws = read_saved([&] { return read_draws(saved); });
  const std::lock_guard lock(mutex_);
  draws_ = draws;
}

void ReplayBuffer::put_draws(State& state) const {
  state.set("draws", static_cast<int64_t>(draws_.count));
  if (draws_.seed) state.set("seed", static_cast<int64_t>(*draws_.seed));
}

ReplayBuffer::Draws ReplayBuffer::read_draws(const State& saved) {
  Draws draws{.count = static_cast<uint64_t>(saved.get<int64_t>("draws"))};
  if (saved.has("seed")) draws.seed = static_cast<uint64_t>(saved.get<int64_t>("seed"));
  return draws;
}

}  // namespace levin
