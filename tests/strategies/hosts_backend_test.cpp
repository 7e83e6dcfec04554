// c10d's collectives between forked ranks of several hosts: a rank moves to a different host by setting its own host
// name. The truth of a reduction is LibTorch's own arithmetic, within each host and then over hosts.
#include "levin/strategies/process/hosts_backend.h"

#include <ATen/ATen.h>
#include <sched.h>

#include <regex>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "levin/core/process/console.h"
#include "shm_truth.h"

namespace levin::hosts_backend_test {
namespace {

using test::check;
using test::Group;
using test::on_ranks;
using test::part_of;
using test::Tensors;
using Op = c10d::ReduceOp::RedOpType;

constexpr int64_t kLarge = (1 << 20) + 7;  // elements: more than a slot holds

bool matches(const std::string& text, const std::string& pattern) {
  return std::regex_search(text, std::regex(pattern));
}

void move_to(const std::string& host) {
  if (::unshare(CLONE_NEWUTS) != 0 || ::sethostname(host.data(), host.size()) != 0) {
    throw std::runtime_error("this process may not have a host name of its own");
  }
}

// Each letter of `hosts` is the host of a rank: "aabb".
Group group_on(ProcessRanks& ranks, const std::string& hosts, const std::string& backend = "auto") {
  const auto self = static_cast<size_t>(ranks.world().rank);
  if (hosts.find_first_not_of(hosts[0]) != std::string::npos) move_to(std::string("host-") + hosts[self]);
  return ranks.group("test", backend, at::kCPU);
}

at::Tensor combined(const at::Tensor& a, const at::Tensor& b, Op op) {
  if (op == Op::PRODUCT) return a * b;
  if (op == Op::MIN) return at::minimum(a, b);
  if (op == Op::MAX) return at::maximum(a, b);
  return a + b;
}

at::Tensor reduced(const std::string& hosts, int64_t size, at::ScalarType type, Op op, int64_t call = 0) {
  at::Tensor whole;
  for (const char host : std::set<char>(hosts.begin(), hosts.end())) {
    at::Tensor sum;
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      if (hosts[rank] != host) continue;
      const at::Tensor part = part_of(static_cast<int64_t>(rank), size, type, call);
      sum = sum.defined() ? combined(sum, part, op) : part;
    }
    whole = whole.defined() ? combined(whole, sum, op) : sum;
  }
  return op == Op::AVG ? whole / static_cast<double>(hosts.size()) : whole;
}

std::string check_reductions(const Group& group, const std::string& hosts) {
  std::string wrong;
  const auto all_reduce = [&](int64_t size, at::ScalarType type, Op op) {
    Tensors tensors = {part_of(group->getRank(), size, type)};
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    group->allreduce(tensors, options)->wait();
    check(wrong, tensors[0], reduced(hosts, size, type, op), "all_reduce " + std::to_string(op));
  };
  for (const auto type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kByte, at::kChar}) {
    for (const Op op : {Op::SUM, Op::PRODUCT, Op::MIN, Op::MAX}) {
      for (const int64_t size : {1, 1000}) all_reduce(size, type, op);
    }
  }
  all_reduce(0, at::kFloat, Op::SUM);
  all_reduce(kLarge, at::kFloat, Op::SUM);
  all_reduce(1000, at::kFloat, Op::AVG);
  return wrong;
}

std::string check_moves(const Group& group, const std::string& hosts) {
  std::string wrong;
  const int64_t self = group->getRank();
  const int64_t ranks = group->getSize();
  at::Tensor own = part_of(self, 100, at::kFloat);
  at::Tensor whole = at::zeros({100 * ranks});
  group->_allgather_base(whole, own)->wait();
  for (int64_t k = 0; k < ranks; ++k)
    check(wrong, whole.narrow(0, 100 * k, 100), part_of(k, 100, at::kFloat), "_allgather_base");
  at::Tensor parts = part_of(self, 100 * ranks, at::kLong);
  at::Tensor part = at::zeros({100}, at::kLong);
  group->_reduce_scatter_base(part, parts)->wait();
  check(wrong, part, reduced(hosts, 100 * ranks, at::kLong, Op::SUM).narrow(0, 100 * self, 100),
        "_reduce_scatter_base");
  Tensors sent = {part_of(self, 100, at::kFloat)};
  group->broadcast(sent)->wait();
  check(wrong, sent[0], part_of(0, 100, at::kFloat), "broadcast");
  std::vector<Tensors> all(1);
  for (int64_t k = 0; k < ranks; ++k) all[0].push_back(at::zeros_like(own));
  Tensors mine = {own};
  group->allgather(all, mine)->wait();
  check(wrong, at::cat(all[0]), whole, "all_gather");
  group->barrier()->wait();
  return wrong;
}

// Three and four ranks on two hosts, whose ranks need not follow each other, and on three.
class HostsBackend : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto can = on_ranks(1, [](ProcessRanks&) {
      move_to("host-a");
      return std::string("yes");
    });
    if (can[0] != "yes") GTEST_SKIP() << can[0];
  }
};
INSTANTIATE_TEST_SUITE_P(On, HostsBackend, testing::Values("aabb", "abab", "aab", "abb", "aabbc"));

TEST_P(HostsBackend, ReducesWithinHostsAndThenBetweenThem) {
  const std::string hosts = GetParam();
  const bool is_exact = std::set<char>(hosts.begin(), hosts.end()).size() == 2;  // Gloo's order of three is its own
  const auto wrong = on_ranks(static_cast<int64_t>(hosts.size()), [&](ProcessRanks& ranks) {
    const Group group = group_on(ranks, hosts);
    const std::string name = group->getBackendName() == "custom" ? "" : group->getBackendName() + "\n";
    return name + (is_exact ? check_reductions(group, hosts) : "") + check_moves(group, hosts);
  });
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

// Makes sixteen calls at once, twice; returns the exact bits of every sum on each rank, as text.
TEST_P(HostsBackend, IsBitwiseIdenticalOnEveryRankInEveryRunAndOrderOfArrival) {
  const std::string hosts = GetParam();
  const auto bits = on_ranks(static_cast<int64_t>(hosts.size()), [&](ProcessRanks& ranks) {
    const Group group = group_on(ranks, hosts);
    std::vector<std::string> runs(2);
    for (size_t run = 0; run < runs.size(); ++run) {
      std::vector<Tensors> tensors;
      std::vector<c10::intrusive_ptr<c10d::Work>> works;
      for (int64_t call = 0; call < 16; ++call) {
        tensors.push_back({part_of(group->getRank(), call % 4 == 3 ? 300'000 : 10 + call, at::kFloat, call)});
        if ((call + static_cast<int64_t>(run)) % 5 == group->getRank()) ::usleep(2000);
        works.push_back(group->allreduce(tensors.back()));
      }
      for (const auto& work : works) {
        work->wait();
        const at::Tensor sum = work->getFuture()->value().toTensorVector()[0];
        runs[run] +=
            std::to_string(sum.view(at::kInt).to(at::kLong).mul(at::arange(sum.numel()) + 1).sum().item<int64_t>()) +
            " ";
      }
    }
    return runs[0] == runs[1] ? runs[0] : runs[0] + "in one run, in another " + runs[1];
  });
  for (const std::string& text : bits) EXPECT_EQ(text, bits[0]);
  EXPECT_EQ(bits[0].find("in another"), std::string::npos) << bits[0];
  EXPECT_EQ(std::count(bits[0].begin(), bits[0].end(), ' '), 16) << bits[0];
}

using HostsFaults = HostsBackend;
INSTANTIATE_TEST_SUITE_P(On, HostsFaults, testing::Values("aabb"));

std::string lost_rank(ProcessRanks& ranks, const std::string& hosts, int64_t lost, int signal_number) {
  const Group group = group_on(ranks, hosts);
  set_timeout(*group, std::chrono::milliseconds(1500));
  Tensors tensors = {at::ones({10})};
  wait_for(*group->allreduce(tensors), *group, "a reduction");
  if (group->getRank() == lost) ::raise(signal_number);
  const auto start = std::chrono::steady_clock::now();
  try {
    wait_for(*group->allreduce(tensors), *group, "a reduction");
  } catch (const RankError& error) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return (took.count() < 5 ? "soon: " : "late: ") + std::string(error.what());
  }
  return "no error";
}

TEST_P(HostsFaults, ARankThatWasKilledIsNamedOnItsHostAndEndsTheOthers) {
  const auto texts = on_ranks(4, [](ProcessRanks& ranks) { return lost_rank(ranks, GetParam(), 3, SIGKILL); });
  EXPECT_PRED2(matches, texts[2], "^soon: rank 2 of 4: a reduction failed: rank 3 \\(process [0-9]+\\) has ended");
  EXPECT_PRED2(matches, texts[0], "^soon: rank 0 of 4: a reduction failed: .*gloo");
  EXPECT_PRED2(matches, texts[1], "^soon: rank 1 of 4: a reduction failed: rank 0 \\(process [0-9]+\\) has ended");
}

TEST_P(HostsFaults, ARankThatHangsIsNamedOnItsHostOnceTheTimeoutIsOver) {
  const auto texts = on_ranks(4, [](ProcessRanks& ranks) { return lost_rank(ranks, GetParam(), 3, SIGSTOP); },
                              std::chrono::seconds(60), {3});
  EXPECT_PRED2(matches, texts[2], "^soon: rank 2 of 4: .* Timed out waiting 1500ms for rank 3 \\(process [0-9]+\\)");
  EXPECT_PRED2(matches, texts[0], "^soon: rank 0 of 4: a reduction failed: .*gloo");
  EXPECT_PRED2(matches, texts[1], "^soon: rank 1 of 4: a reduction failed: rank 0 \\(process [0-9]+\\) has ended");
}

TEST_P(HostsFaults, RequiredSharedMemoryNamesTheHosts) {
  for (const std::string& text : on_ranks(4, [](ProcessRanks& ranks) {
         (void)group_on(ranks, GetParam(), "shm");
         return std::string("no error");
       })) {
    EXPECT_EQ(text,
              "DDPOptions.process_group_backend: shm requires memory that all ranks share, but rank 0 is on host "
              "host-a, rank 2 is on host host-b. Use gloo or auto.");
  }
}

TEST_P(HostsFaults, ARankOnEachHostUsesGlooAlone) {
  for (const std::string& text : on_ranks(2, [](ProcessRanks& ranks) {
         std::string name = group_on(ranks, "ab")->getBackendName();
         ranks.barrier();  // a rank that ends earlier closes what the other is still connecting to
         return name;
       })) {
    EXPECT_EQ(text, "gloo");
  }
}

}  // namespace
}  // namespace levin::hosts_backend_test
