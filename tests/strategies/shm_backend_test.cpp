// c10d's collectives through shared memory, between forked ranks.
#include "levin/strategies/process/shm_backend.h"

#include <ATen/ATen.h>
#include <sys/resource.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/strategies/process/rank_groups.h"
#include "shm_truth.h"

namespace levin::shm_backend_test {
namespace {

using test::check;
using test::Group;
using test::on_ranks;
using test::part_of;
using test::reduced;
using test::shm;
using test::Tensors;

constexpr int64_t kLarge = (1 << 20) + 7;  // elements: more than a slot of any type holds
const std::vector<at::ScalarType> kTypes = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                                            at::kInt,   at::kShort,  at::kByte, at::kChar,     at::kBool};

void check_all_reduce(std::string& wrong, const Group& group, int64_t size, at::ScalarType type,
                      c10d::ReduceOp::RedOpType op) {
  Tensors tensors = {part_of(group->getRank(), size, type)};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  group->allreduce(tensors, options)->wait();
  check(wrong, tensors[0], reduced(group->getSize(), size, type, op), "all_reduce " + std::to_string(op));
}

void check_reduce(std::string& wrong, const Group& group, int64_t size, at::ScalarType type) {
  const int64_t self = group->getRank();
  c10d::ReduceOptions options;
  options.rootRank = group->getSize() - 1;
  Tensors tensors = {part_of(self, size, type)};
  group->reduce(tensors, options)->wait();
  const bool is_root = self == options.rootRank;
  check(wrong, tensors[0],
        is_root ? reduced(group->getSize(), size, type, c10d::ReduceOp::SUM) : part_of(self, size, type), "reduce");
}

void check_reduce_scatter(std::string& wrong, const Group& group, int64_t size, at::ScalarType type) {
  const int64_t ranks = group->getSize();
  at::Tensor input = part_of(group->getRank(), size * ranks, type);
  at::Tensor output = at::empty({size}, input.options());
  group->_reduce_scatter_base(output, input)->wait();
  const at::Tensor whole = reduced(ranks, size * ranks, type, c10d::ReduceOp::SUM);
  const at::Tensor expected = whole.narrow(0, group->getRank() * size, size);
  check(wrong, output, expected, "_reduce_scatter_base");
  Tensors outputs = {at::empty_like(output)};
  std::vector<Tensors> inputs = {input.chunk(ranks)};
  if (size == 0) inputs[0].resize(static_cast<size_t>(ranks), input);
  group->reduce_scatter(outputs, inputs)->wait();
  check(wrong, outputs[0], expected, "reduce_scatter");
}

void check_moves(std::string& wrong, const Group& group, int64_t size, at::ScalarType type) {
  const int64_t self = group->getRank();
  const int64_t ranks = group->getSize();
  Tensors own = {part_of(self, size, type)};
  std::vector<Tensors> all(1);
  for (int64_t k = 0; k < ranks; ++k) all[0].push_back(at::zeros_like(own[0]));
  group->allgather(all, own)->wait();
  for (int64_t k = 0; k < ranks; ++k)
    check(wrong, all[0][static_cast<size_t>(k)], part_of(k, size, type), "all_gather");
  at::Tensor whole = at::zeros({size * ranks}, own[0].options());
  group->_allgather_base(whole, own[0])->wait();
  check(wrong, whole, at::cat(all[0]), "_allgather_base");
  const int64_t root = ranks - 1;
  c10d::GatherOptions gather;
  gather.rootRank = root;
  std::vector<Tensors> none;
  std::vector<Tensors> gathered = {Tensors()};
  for (int64_t k = 0; k < ranks; ++k) gathered[0].push_back(at::zeros_like(own[0]));
  group->gather(self == root ? gathered : none, own, gather)->wait();
  if (self == root) check(wrong, at::cat(gathered[0]), whole, "gather");
  c10d::ScatterOptions scatter;
  scatter.rootRank = root;
  Tensors received = {at::zeros_like(own[0])};
  group->scatter(received, self == root ? all : none, scatter)->wait();
  check(wrong, received[0], own[0], "scatter");
  c10d::BroadcastOptions broadcast;
  broadcast.rootRank = root;
  Tensors sent = {part_of(self, size, type)};
  group->broadcast(sent, broadcast)->wait();
  check(wrong, sent[0], part_of(root, size, type), "broadcast");
  group->barrier()->wait();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class ShmRanks : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Of, ShmRanks, testing::Values(2, 3, 4));

TEST_P(ShmRanks, ReduceInTheOrderOfRanks) {
  const auto wrong = on_ranks(GetParam(), [](ProcessRanks& ranks) {
    std::string text;
    const Group group = shm(ranks);
    for (const auto type : kTypes) {
      for (const auto op : {c10d::ReduceOp::SUM, c10d::ReduceOp::PRODUCT, c10d::ReduceOp::MIN, c10d::ReduceOp::MAX}) {
        for (const int64_t size : {0, 1, 3, 1000, 1024, 2050}) check_all_reduce(text, group, size, type, op);
      }
      if (at::isFloatingType(type)) check_all_reduce(text, group, 1000, type, c10d::ReduceOp::AVG);
      for (const int64_t size : {0, 1, 3, 1000}) check_reduce(text, group, size, type);
      for (const int64_t size : {0, 1, 3, 1000}) check_reduce_scatter(text, group, size, type);
    }
    for (const auto type : {at::kFloat, at::kBFloat16, at::kLong}) {
      check_all_reduce(text, group, kLarge, type, c10d::ReduceOp::SUM);
      check_reduce(text, group, kLarge, type);
      check_reduce_scatter(text, group, kLarge, type);
    }
    return text;
  });
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

TEST_P(ShmRanks, MoveTensors) {
  const auto wrong = on_ranks(GetParam(), [](ProcessRanks& ranks) {
    std::string text;
    const Group group = shm(ranks);
    for (const auto type : kTypes) {
      for (const int64_t size : {0, 1, 3, 1000}) check_moves(text, group, size, type);
    }
    check_moves(text, group, kLarge, at::kFloat);
    return text;
  });
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

// Small and large ones, so that callers and the thread of the group complete them; ranks come at other times each.
TEST_P(ShmRanks, KeepTheOrderOfCallsInFlightAndTheirBits) {
  const auto wrong = on_ranks(GetParam(), [](ProcessRanks& ranks) {
    std::string text;
    const Group group = shm(ranks);
    for (int64_t run = 0; run < 3; ++run) {
      std::vector<Tensors> tensors;
      std::vector<c10::intrusive_ptr<c10d::Work>> works;
      for (int64_t call = 0; call < 24; ++call) {
        const int64_t size = call % 4 == 3 ? 700'000 + call : 10 + call;
        tensors.push_back({part_of(group->getRank(), size, at::kFloat, call)});
        if ((call + run) % 5 == group->getRank()) ::usleep(2000);
        works.push_back(group->allreduce(tensors.back()));
      }
      for (size_t call = works.size(); call-- > 0;) {
        works[call]->wait();
        const at::Tensor found = works[call]->getFuture()->value().toTensorVector()[0];
        check(text, found,
              reduced(group->getSize(), found.numel(), at::kFloat, c10d::ReduceOp::SUM, static_cast<int64_t>(call)),
              "call " + std::to_string(call));
      }
    }
    return text;
  });
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

TEST(ShmBackend, GroupsDoNotWaitForEachOther) {
  const auto wrong = on_ranks(2, [](ProcessRanks& ranks) {
    std::string text;
    const Group one = shm(ranks, "one");
    const Group other = shm(ranks, "other");
    EXPECT_NE(one, other);
    Tensors a = {part_of(one->getRank(), 100, at::kFloat)};
    Tensors b = {part_of(one->getRank(), 100, at::kFloat, 1)};
    const bool first = one->getRank() == 0;  // each rank starts with a different group
    const auto work = first ? one->allreduce(a) : other->allreduce(b);
    const auto next = first ? other->allreduce(b) : one->allreduce(a);
    next->wait();
    work->wait();
    check(text, a[0], reduced(2, 100, at::kFloat, c10d::ReduceOp::SUM), "one");
    check(text, b[0], reduced(2, 100, at::kFloat, c10d::ReduceOp::SUM, 1), "other");
    return text;
  });
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

TEST(ShmBackend, RefusesWhatItCannotReduceOrRead) {
  const auto texts = on_ranks(1, [](ProcessRanks& ranks) {
    const Group group = shm(ranks);
    std::string text;
    const auto refused = [&](at::Tensor tensor, c10d::ReduceOp::RedOpType op) {
      Tensors tensors = {std::move(tensor)};
      c10d::AllreduceOptions options;
      options.reduceOp = op;
      try {
        group->allreduce(tensors, options)->wait();
        text += "no error\n";
      } catch (const Error& error) {
        text += std::string(error.what()) + "\n";
      }
    };
    refused(at::ones({2}, at::kLong), c10d::ReduceOp::AVG);
    refused(at::ones({2}, at::kComplexFloat), c10d::ReduceOp::SUM);
    refused(at::ones({2, 3}).t(), c10d::ReduceOp::SUM);
    refused(at::ones({2}, at::kInt), c10d::ReduceOp::BXOR);
    return text;
  });
  EXPECT_PRED2(has, texts[0], ("an average over ranks is for floating-point tensors, not Long"));
  EXPECT_PRED2(has, texts[0], ("tensors of type ComplexFloat cannot be reduced. Use process_group_backend: gloo"));
  EXPECT_PRED2(has, texts[0], ("tensors must be contiguous and on the CPU; one is on cpu"));
  EXPECT_PRED2(has, texts[0], ("reductions are SUM, AVG, PRODUCT, MIN and MAX, not c10d's number 7"));
  EXPECT_EQ(texts[0].find("no error"), std::string::npos) << texts[0];
}

// Rank 0 may not have a file as large as the memory.
std::string without_memory(ProcessRanks& ranks, const std::string& backend) {
  if (ranks.world().rank == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1 << 16, 1 << 16};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  std::string text;
  Console::instance().capture([&](const std::string& line) { text += line; });
  const Group group = ranks.group("test", backend, at::kCPU);
  Tensors tensors = {at::ones({10})};
  group->allreduce(tensors)->wait();
  return text + " " + group->getBackendName() + " " + std::to_string(tensors[0].sum().item<double>());
}

TEST(ShmBackend, LeavesItToGlooWhereThereIsNoMemoryAndReportsIt) {
  const auto texts = on_ranks(2, [](ProcessRanks& ranks) { return without_memory(ranks, "auto"); });
  EXPECT_PRED2(has, texts[0],
               ("Ranks communicate over Gloo, which is slower than shared memory: rank 0 has no "
                "shared memory: allocating"));
  EXPECT_PRED2(has, texts[0], ("File too large. gloo 20"));
  EXPECT_EQ(texts[1], " gloo 20.000000");
}

TEST(ShmBackend, IsAnErrorOnEveryRankWhereItWasAskedForAndThereIsNoMemory) {
  for (const std::string& text : on_ranks(2, [](ProcessRanks& ranks) { return without_memory(ranks, "shm"); })) {
    EXPECT_PRED2(has, text,
                 ("process_group_backend: shm requires memory that all ranks share, but rank 0 has no "
                  "shared memory: allocating"));
  }
}

TEST(ShmBackend, DoesNotTakeAnotherProcesssFileForItsMemory) {
  EXPECT_THROW(ShmSegment("/proc/self/exe 1 2", 1, 2), Error);
  EXPECT_THROW(ShmSegment("/proc/self/fd/9999 1 2", 1, 2), Error);
  const ShmSegment own(2, 1 << 16);
  const std::string offer = own.offer();
  EXPECT_THROW(ShmSegment(offer + "1", 1, 2), Error);
  EXPECT_THROW(ShmSegment(offer, 1, 3), Error);
}

}  // namespace
}  // namespace levin::shm_backend_test
