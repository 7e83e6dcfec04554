// Measures reading of data in shards (MDS): arrays of 1 KB, and JPEGs of 160 x 160 pixels, in shuffled batches by two
// workers; by Levin's StreamLoader and by mosaicml-streaming under Python's DataLoader (peers/streams.py). Then the
// JPEGs from a web server that answers each request after 50 ms, into an empty cache, compared with a folder. Then the
// time to the first batch of a run that continues inside an epoch of 10,000 shards, with an empty cache.
#include <httplib.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "levin/core/files/files.h"
#include "levin/data/images/jpeg_encoder.h"
#include "levin/data/streams/stream_loader.h"
#include "made_images.h"
#include "peer.h"
#include "rounds.h"

namespace bench::streams {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kBatchSize = 64;
constexpr int64_t kWorkers = 2;
constexpr std::chrono::milliseconds kLatency(50);

/// A folder of its own, removed with the object.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("levin-bench-" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

std::string number(uint32_t value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// Writes a data set as mosaicml-streaming's MDSWriter: `columns` are its encodings by name, `sizes` their bytes, null
/// if these vary, and `sample` the bytes of a sample's columns.
template <class Sample>
void write_shards(const fs::path& folder, int64_t shards, int64_t samples, const std::vector<std::string>& names,
                  const std::vector<std::string>& encodings, const std::vector<std::optional<int64_t>>& sizes,
                  const Sample& sample) {
  fs::create_directories(folder);
  nlohmann::json config{{"version", 2},
                        {"format", "mds"},
                        {"compression", nullptr},
                        {"hashes", nlohmann::json::array()},
                        {"size_limit", nullptr},
                        {"column_names", names},
                        {"column_encodings", encodings}};
  config["column_sizes"] = nlohmann::json::array();
  for (const auto& size : sizes) config["column_sizes"].push_back(size ? nlohmann::json(*size) : nlohmann::json());
  nlohmann::json index{{"version", 2}, {"shards", nlohmann::json::array()}};
  for (int64_t shard = 0; shard < shards; ++shard) {
    const std::string head = config.dump();
    std::string offsets, body;
    const size_t start = 4 + 4 * (static_cast<size_t>(samples) + 1) + head.size();
    for (int64_t k = 0; k < samples; ++k) {
      offsets += number(static_cast<uint32_t>(start + body.size()));
      std::string lengths, values;
      const std::vector<std::string> columns = sample(shard * samples + k);
      for (size_t c = 0; c < columns.size(); ++c) {
        if (!sizes[c]) lengths += number(static_cast<uint32_t>(columns[c].size()));
        values += columns[c];
      }
      body += lengths + values;
    }
    offsets += number(static_cast<uint32_t>(start + body.size()));
    const std::string name =
        "shard." + std::string(5 - std::to_string(shard).size(), '0') + std::to_string(shard) + ".mds";
    const std::string whole = number(static_cast<uint32_t>(samples)) + offsets + head + body;
    std::ofstream(folder / name, std::ios::binary) << whole;
    nlohmann::json entry = config;
    entry["samples"] = samples;
    entry["raw_data"] = {{"basename", name}, {"bytes", whole.size()}, {"hashes", nlohmann::json::object()}};
    entry["zip_data"] = nullptr;
    index["shards"].push_back(entry);
  }
  std::ofstream(folder / "index.json") << index.dump();
}

template <class T>
std::string bytes_of(const T* first, size_t count) {
  return {reinterpret_cast<const char*>(first), count * sizeof(T)};
}

void write_arrays(const fs::path& folder, int64_t shards, int64_t samples) {
  torch::manual_seed(0);
  write_shards(folder, shards, samples, {"x", "y"}, {"ndarray:float32:256", "int"}, {int64_t{1024}, int64_t{8}},
               [](int64_t k) {
                 const at::Tensor x = torch::rand({256});
                 const int64_t y = k % 10;
                 return std::vector{bytes_of(x.const_data_ptr<float>(), 256), bytes_of(&y, 1)};
               });
}

void write_images(const fs::path& folder, int64_t shards, int64_t samples) {
  torch::manual_seed(0);
  std::vector<std::string> images;
  for (int k = 0; k < 32; ++k) images.push_back(levin::encode_jpeg(made_pixels(160, 160), 90));
  write_shards(folder, shards, samples, {"image", "y"}, {"jpeg", "int"}, {std::nullopt, int64_t{8}}, [&](int64_t k) {
    return std::vector{images[static_cast<size_t>(k) % images.size()], bytes_of(&k, 1)};
  });
}

/// Files of a folder, each answer after a pause.
class SlowServer {
 public:
  explicit SlowServer(fs::path folder) : folder_(std::move(folder)) {
    server_.set_tcp_nodelay(true);
    server_.set_keep_alive_max_count(1'000'000);
    server_.new_task_queue = [] { return new httplib::ThreadPool(16); };
    server_.Get(".*", [this](const httplib::Request& request, httplib::Response& response) {
      std::this_thread::sleep_for(kLatency);
      const fs::path path = folder_ / request.path.substr(1);
      if (!fs::is_regular_file(path)) return (void)(response.status = 404);
      response.set_content(levin::read_file(path), "application/octet-stream");
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
  }
  ~SlowServer() {
    server_.stop();
    thread_.join();
  }
  SlowServer(const SlowServer&) = delete;
  SlowServer& operator=(const SlowServer&) = delete;
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  fs::path folder_;
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

double pass(levin::StreamLoader& loader, int64_t epoch, int64_t wanted) {
  const auto start = std::chrono::steady_clock::now();
  int64_t seen = 0;
  loader.start(epoch);
  for (levin::Batch batch; loader.next(batch);) seen += batch[0].size(0);
  if (seen != wanted) throw std::runtime_error("a pass gave " + std::to_string(seen) + " samples");
  return static_cast<double>(seen) / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

const levin::StreamLoaderOptions kOptions{
    .batch_size = kBatchSize, .shuffle = true, .num_workers = kWorkers, .seed = 1};

Candidate near(const std::string& path, int64_t wanted) {
  auto loader = std::make_shared<levin::StreamLoader>(std::make_shared<levin::StreamSource>(path), kOptions);
  return {"Levin", [loader, wanted, epoch = int64_t{0}]() mutable { return pass(*loader, epoch++, wanted); }};
}

// Opened anew in each round, with an empty cache.
Candidate far(const std::string& url, const fs::path& cache, int64_t wanted) {
  return {"Levin, 50 ms away", [url, cache, wanted, epoch = int64_t{0}]() mutable {
            fs::remove_all(cache);
            levin::StreamSourceOptions options;
            options.cache = cache.string();
            levin::StreamLoader loader(std::make_shared<levin::StreamSource>(url, options), kOptions);
            return pass(loader, epoch++, wanted);
          }};
}

// Milliseconds from nothing to a batch in the middle of an epoch.
Candidate resumed(const std::string& name, const std::string& url, const fs::path& cache, int64_t batch_idx) {
  return {name, [url, cache, batch_idx, epoch = int64_t{0}]() mutable {
            fs::remove_all(cache);
            const auto start = std::chrono::steady_clock::now();
            levin::StreamSourceOptions options;
            options.cache = cache.string();
            levin::StreamLoader loader(std::make_shared<levin::StreamSource>(url, options), kOptions);
            loader.start(epoch++, batch_idx);
            levin::Batch batch;
            if (!loader.next(batch) || batch[0].size(0) != kBatchSize)
              throw std::runtime_error("no batch to resume at");
            return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
          }};
}

int run(const Options& options) {
  at::set_num_threads(1);
  const int64_t shards = options.quick ? 4 : 40, arrays = options.quick ? 64 : 1000, images = options.quick ? 32 : 640;
  const Folder folder;
  write_arrays(folder / "arrays", shards, arrays);
  write_images(folder / "images", shards, images);
  const auto peer = Peer::start("streams", {(folder / "").string()});
  Report report("streams");
  if (peer != nullptr) report.peers(peer->versions());
  for (const auto& [name, samples, title] : {std::tuple{"arrays", shards * arrays, "Arrays of 1 KB"},
                                             std::tuple{"images", shards * images, "JPEGs of 160x160"}}) {
    std::vector<Candidate> candidates = {near((folder / name).string(), samples)};
    const std::string words = std::string(name) + " " + std::to_string(kWorkers);
    if (peer != nullptr) candidates.push_back({"mosaicml-streaming", [peer, words] { return peer->round(words); }});
    const auto measurements = interleave(candidates, options);
    report.table(std::string(title) + ", two workers", "samples/s", measurements);
    report.at_least(std::string(name) + "_to_python", ratio(measurements, "Levin", "mosaicml-streaming"), 3);
  }
  const SlowServer server(folder / "images");
  const auto measurements = interleave(
      {near((folder / "images").string(), shards * images), far(server.url(), folder / "cache", shards * images)},
      options);
  report.table("JPEGs in a folder, and on a web server with 50 ms of latency", "samples/s", measurements);
  report.at_least("far_to_near", ratio(measurements, "Levin, 50 ms away", "Levin"), 0.9);
  const int64_t many = options.quick ? 100 : 10'000;
  write_arrays(folder / "many", many, 8);
  const SlowServer server_of_many(folder / "many");
  const int64_t middle = many * 8 / kBatchSize / 2;
  const auto resumes = interleave({resumed("folder", (folder / "many").string(), folder / "cache", middle),
                                   resumed("50 ms away", server_of_many.url(), folder / "cache", middle)},
                                  options);
  report.table("The first batch of a resumed run with 10,000 shards", "ms", resumes);
  report.at_most("resume_ms", resumes[0].median, 1000);
  report.at_most("resume_far_ms", resumes[1].median, 1000);
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 5);
  return guarded([&] { return run(options); });
}

}  // namespace bench::streams
