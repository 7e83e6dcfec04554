#include "levin/trainer/loops/fabric_pass.h"

#include <string>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/state/loader_state.h"

namespace levin {

namespace {

FabricPosition take_position(FabricSource& source, int64_t epoch) {
  const auto resumed = source.resumed;
  if (!resumed) return {.epoch = epoch};
  if (resumed->epoch != epoch) {
    throw Error("the checkpoint was saved in epoch " + std::to_string(resumed->epoch) + " of this loader, and epoch " +
                std::to_string(epoch) + " was asked for. Begin the loop at fabric.current_epoch().");
  }
  source.resumed.reset();
  return *resumed;
}

std::string key_of_source(size_t index) {
  return "loader" + std::to_string(index);
}

State position_state(const FabricPosition& position) {
  State state;
  state.set("epoch", position.epoch);
  state.set("next_batch", position.next_batch);
  state.set("trained", position.trained);
  state.set("stepped", position.stepped);
  state.set("finished", position.finished);
  return state;
}

FabricPosition position_of(const State& saved) {
  return {.epoch = saved.get<int64_t>("epoch"),
          .next_batch = saved.get<int64_t>("next_batch"),
          .trained = saved.get<bool>("trained"),
          .stepped = saved.get<bool>("stepped"),
          .finished = saved.get<bool>("finished")};
}

std::string batches_text(int64_t num_batches, int64_t batch_size) {
  return (num_batches == kUnlimited ? "an unknown number of batches" : count_of(num_batches, "batch", "batches")) +
         (batch_size == 0 ? "" : " of " + count_of(batch_size, "sample"));
}

// A position is a number of batches, which are other samples if the batches are others.
void check_batches(const FabricSource& source, size_t index, const State& position) {
  if (!position.has("num_batches") || position.get<int64_t>("next_batch") == 0) return;
  const auto num_batches = position.get<int64_t>("num_batches"), batch_size = position.get<int64_t>("batch_size");
  if (num_batches == source.num_batches && batch_size == source.batch_size) return;
  throw CheckpointError("it was saved inside a pass over loader " + std::to_string(index) + ", which had " +
                        batches_text(num_batches, batch_size) + ", and now has " +
                        batches_text(source.num_batches, source.batch_size) +
                        ". Samples would be skipped or repeated: finish the pass with the loaders of then, in their "
                        "order, and change them between two passes.");
}

}  // namespace

OpenPass::OpenPass(Run& run, std::shared_ptr<FabricSource> source, int64_t epoch, PassEvents events)
    : run_(run),
      source_(std::move(source)),
      position_(take_position(*source_, epoch)),
      stream_(*source_->loader, source_->num_batches),
      events_(std::move(events)) {
  if (source_->moves) copy_ahead(run, stream_);
  end_together(run.strategy->ranks(), stream_);
  stream_.start(epoch, position_.next_batch);
  source_->pass = this;
}

OpenPass::~OpenPass() {
  source_->pass = nullptr;
  events_.on_leave(*this);
}

bool OpenPass::next() {
  if (is_over_) return false;
  Batch fetched;
  if (!stream_.next(fetched)) {
    if (position_.trained) events_.on_end(*this);
    is_over_ = true;
    return false;
  }
  batch_ = source_->moves ? transfer_batch(run_, std::move(fetched), 0) : std::move(fetched);
  return true;
}

int64_t OpenPass::batches_left() const {
  return knows_length() ? source_->num_batches - index() : kUnlimited;
}

FabricPosition OpenPass::saved_position() const {
  FabricPosition position = position_;
  if (!position.stepped || position.next_batch < index()) position.next_batch = index() + 1;
  return position;
}

State OpenPass::loader_state() const {
  return saved_position().next_batch == index() ? stream_.state_before() : stream_.state_after();
}

std::shared_ptr<FabricSource> set_up_source(Run& run, const Loaders& loader, const FabricLoaderOptions& options) {
  if (loader.size() != 1 || loader[0] == nullptr) {
    throw Error("got " + count_of(static_cast<int64_t>(loader.size()), "loader") +
                (loader.size() == 1 ? ", a null pointer" : "") + ". Give one loader to each call.");
  }
  auto source = std::make_shared<FabricSource>();
  source->loader = loader[0];
  source->moves = options.move_to_device;
  if (options.use_distributed_sampler) share_out(run, *source->loader, options.padded);
  source->loader->identify_samples(false);
  source->num_batches = source->loader->num_batches().value_or(kUnlimited);
  const bool is_shared = options.use_distributed_sampler && run.has_peers();
  source->batch_size =
      source->loader->batch_size().value_or(0) * (is_shared ? run.strategy->ranks().mesh().data().size() : 1);
  RankCollectives& ranks = run.strategy->ranks();
  const bool has_state = !source->loader->state_dict().empty();
  source->has_state = options.padded ? check_same_batches(ranks, source->num_batches, has_state) : ranks.any(has_state);
  return source;
}

State sources_state(const Run& run, const FabricSources& sources) {
  State all;
  all.set("loaders", static_cast<int64_t>(sources.size()));
  for (size_t k = 0; k < sources.size(); ++k) {
    const FabricSource& source = *sources[k];
    State one;
    if (source.pass != nullptr) {
      State position = position_state(source.pass->saved_position());
      position.set("num_batches", source.num_batches);
      position.set("batch_size", source.batch_size);
      one.put("position", position);
    }
    if (source.has_state) {
      State own = source.pass != nullptr ? source.pass->loader_state() : source.loader->state_dict();
      source.loader->add_to_checkpoint(own);
      one.put("state", states_of_ranks(run, own));
    }
    all.put(key_of_source(k), one);
  }
  return all;
}

void check_sources(const FabricSources& sources, const State& saved) {
  const auto count = saved.get<int64_t>("loaders");
  if (count == static_cast<int64_t>(sources.size())) {
    for (size_t k = 0; k < sources.size(); ++k) {
      check_batches(*sources[k], k, saved.part(key_of_source(k)).part("position"));
    }
    return;
  }
  throw CheckpointError("it holds the positions of " + count_of(count, "loader") + ", and " +
                        std::to_string(sources.size()) +
                        " were set up. Call setup_dataloaders for the same loaders before load.");
}

void restore_sources(const Run& run, const FabricSources& sources, const State& saved) {
  for (size_t k = 0; k < sources.size(); ++k) {
    const State one = saved.part(key_of_source(k));
    const State position = one.part("position");
    sources[k]->resumed = position.empty() ? std::nullopt : std::optional(position_of(position));
    const State state = state_of_rank(run, one.part("state"));
    if (!state.empty()) sources[k]->loader->load_state_dict(state);
  }
}

}  // namespace levin
