// What both self-play programs share: tic-tac-toe, a network for policy and value, and the tree search that plays
// games with it (AlphaZero, Silver et al. 2017, https://arxiv.org/abs/1712.01815).
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

constexpr int64_t kIterations = 15, kGames = 16, kUpdates = 24, kBatch = 32, kCapacity = 1024;
constexpr int64_t kMoves = 9, kSearches = 24, kTestGames = 100;

class TicTacToe {
 public:
  [[nodiscard]] std::vector<int64_t> moves() const {
    std::vector<int64_t> free;
    for (int64_t k = 0; k < kMoves; ++k) {
      if (cells_[k] == 0) free.push_back(k);
    }
    return free;
  }
  void play(int64_t move) {
    cells_[move] = player_;
    player_ = -player_;
    ++played_;
  }
  /// Returns whether the player who has just moved has three in a row.
  [[nodiscard]] bool is_lost() const {
    constexpr int kLines[8][3] = {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {0, 3, 6},
                                  {1, 4, 7}, {2, 5, 8}, {0, 4, 8}, {2, 4, 6}};
    return std::any_of(std::begin(kLines), std::end(kLines), [&](const auto& line) {
      return cells_[line[0]] + cells_[line[1]] + cells_[line[2]] == -3 * player_;
    });
  }
  [[nodiscard]] bool is_over() const { return played_ == kMoves || is_lost(); }
  /// Returns the stones of the player to move, then the other's, (18).
  [[nodiscard]] torch::Tensor observation() const {
    torch::Tensor stones = torch::zeros({2 * kMoves});
    for (int64_t k = 0; k < kMoves; ++k) {
      if (cells_[k] != 0) stones.mutable_data_ptr<float>()[cells_[k] == player_ ? k : kMoves + k] = 1;
    }
    return stones;
  }

 private:
  std::array<int, kMoves> cells_ = {};
  int player_ = 1, played_ = 0;
};

struct Net : torch::nn::Module {
  torch::nn::Sequential body =
      register_module("body", torch::nn::Sequential(torch::nn::Linear(2 * kMoves, 64), torch::nn::ReLU(),
                                                    torch::nn::Linear(64, 64), torch::nn::ReLU()));
  torch::nn::Linear policy = register_module("policy", torch::nn::Linear(64, kMoves));
  torch::nn::Linear value = register_module("value", torch::nn::Linear(64, 1));

  torch::Tensor loss(const torch::Tensor& observation, const torch::Tensor& visits, const torch::Tensor& outcome) {
    const torch::Tensor features = body->forward(observation);
    return torch::cross_entropy_loss(policy->forward(features), visits) +
           torch::mse_loss(value->forward(features).tanh(), outcome);
  }
};

/// A position of a game that was played, with what the network learns about it.
struct Example {
  torch::Tensor observation;  // (18)
  torch::Tensor visits;       // (9), the search's shares of the moves
  torch::Tensor outcome;      // (1), for the player to move: 1 won, -1 lost
};

/// A node of the search tree: a position, and what the search knows of its moves.
struct Node {
  TicTacToe game;
  std::vector<int64_t> moves = {};
  std::vector<double> priors = {}, visits = {}, totals = {};
  std::vector<std::unique_ptr<Node>> children = {};
};

/// Evaluates the node's position with the network; returns its value for the player to move.
inline double expand(Node& node, Net& net) {
  node.moves = node.game.moves();
  const torch::Tensor features = net.body->forward(node.game.observation());
  const torch::Tensor logits = net.policy->forward(features);
  double sum = 0;
  for (const int64_t move : node.moves) {
    node.priors.push_back(std::exp(static_cast<double>(logits.const_data_ptr<float>()[move])));
    sum += node.priors.back();
  }
  for (double& prior : node.priors) prior /= sum;
  node.visits.assign(node.moves.size(), 0);
  node.totals.assign(node.moves.size(), 0);
  node.children.resize(node.moves.size());
  return std::tanh(static_cast<double>(*net.value->forward(features).const_data_ptr<float>()));
}

/// Searches once below the node; returns the value for its player to move.
inline double search(Node& node, Net& net) {
  if (node.game.is_over()) return node.game.is_lost() ? -1 : 0;
  if (node.moves.empty()) return expand(node, net);
  double all = 1;
  for (const double visits : node.visits) all += visits;
  size_t best = 0;
  double highest = -1e9;
  for (size_t k = 0; k < node.moves.size(); ++k) {
    const double mean = node.visits[k] > 0 ? node.totals[k] / node.visits[k] : 0;
    const double score = mean + 1.5 * node.priors[k] * std::sqrt(all) / (1 + node.visits[k]);
    if (score > highest) highest = score, best = k;
  }
  if (node.children[best] == nullptr) {
    node.children[best] = std::make_unique<Node>(Node{.game = node.game});
    node.children[best]->game.play(node.moves[best]);
  }
  const double value = -search(*node.children[best], net);
  ++node.visits[best];
  node.totals[best] += value;
  return value;
}

inline Node searched(const TicTacToe& game, Net& net) {
  const torch::InferenceMode no_graph;
  Node root{.game = game};
  for (int64_t k = 0; k <= kSearches; ++k) search(root, net);
  return root;
}

/// Plays a game against itself, and returns its positions.
inline std::vector<Example> play_game(Net& net, std::mt19937& generator) {
  std::vector<Example> examples;
  TicTacToe game;
  while (!game.is_over()) {
    const Node root = searched(game, net);
    Example& example = examples.emplace_back(game.observation(), torch::zeros({kMoves}), torch::zeros({1}));
    for (size_t k = 0; k < root.moves.size(); ++k) {
      example.visits.mutable_data_ptr<float>()[root.moves[k]] = static_cast<float>(root.visits[k] / kSearches);
    }
    std::discrete_distribution<size_t> by_visits(root.visits.begin(), root.visits.end());
    game.play(root.moves[by_visits(generator)]);
  }
  float outcome = game.is_lost() ? -1.0F : 0.0F;
  for (auto example = examples.rbegin(); example != examples.rend(); ++example) {
    example->outcome.fill_(outcome = -outcome);
  }
  return examples;
}

/// Returns the share of games that the network, without a search, does not lose to a player who moves at random.
inline double score_against_random(Net& net) {
  const torch::InferenceMode no_graph;
  std::mt19937 generator(1);
  double score = 0;
  for (int64_t k = 0; k < kTestGames; ++k) {
    TicTacToe game;
    bool is_random = k % 2 == 0;  // the player to move
    for (; !game.is_over(); is_random = !is_random) {
      Node node{.game = game};
      (void)expand(node, net);
      const auto likeliest = std::max_element(node.priors.begin(), node.priors.end()) - node.priors.begin();
      game.play(node.moves[is_random ? generator() % node.moves.size() : likeliest]);
    }
    if (!game.is_lost() || is_random) score += 1;
  }
  return score / kTestGames;
}
