// Our half of the loader's bench: answers each line of standard input, a command, with a line of JSON. compare.py and
// compare_files.py are the Python half.
//   bench_loader FOLDER
//     WORKLOAD time SECONDS [PASSES]  batches for that long: rate, microseconds per batch, epoch turn-round, ...; with PASSES
//                                     each batch feeds a step of that many convolutions
//     WORKLOAD ceiling SECONDS PASSES the same step fed with replayed batches
//     WORKLOAD bound SECONDS          samples a second of Source::read alone, in as many threads as the loader has readers
//     WORKLOAD digest                 sum over all samples of an epoch of the hash of their bytes, so that order does not matter
//     WORKLOAD streams                hash of two epochs in order, for 0, 1, 2 and 8 readers
//     passes MILLISECONDS             the number of convolutions that take that long
// WORKLOAD is rows (x.bin, y.bin: f32 [20] and [5]), tokens (tokens.bin: u16; windows of 257), or the name of a description
// FOLDER/WORKLOAD.json (see data/workload/workload.h).
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <thread>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/hash.h"
#include "millrace/core/batch.h"
#include "millrace/data/loader/loader.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/data/sources/token_source.h"
#include "millrace/data/workload/workload.h"
#include "millrace/measure/loader_bench.h"
#include "millrace/train/step/feed.h"

namespace millrace {
namespace {

constexpr std::int64_t kContext = 256;

std::vector<float> read_floats(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.empty()) throw DataError({.what = path + " can't be read", .where = "", .next = "run compare.py, which makes it"});
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

struct Workload {
  std::shared_ptr<const data::Source> source;
  std::int64_t batch_size;
  std::vector<std::string> delivered;  // the tensors that a step would take, in order
};

Workload rows_of(const std::string& folder) {
  std::vector<data::MemoryArray> arrays;
  arrays.push_back(data::memory_array("x", {20}, read_floats(folder + "/x.bin")));
  arrays.push_back(data::memory_array("y", {5}, read_floats(folder + "/y.bin")));
  return {std::make_shared<data::MemorySource>(std::move(arrays)), 256, {"x", "y"}};
}

Workload tokens_of(const std::string& folder) {
  const auto tokens = data::TokenArray::open_bare(folder + "/tokens.bin", 2, 50'257);
  return {std::make_shared<data::TokenSource>(tokens, data::TokenWindows{.seq_len = kContext + 1, .overlap = 1}),
          16,
          {"input", "target"}};
}

data::Loader open(const Workload& workload, int readers) {
  data::LoaderOptions options;
  options.batch_size = workload.batch_size;
  options.shuffle = true;
  options.seed = 1;
  options.readers = readers;
  return {data::single(workload.source), options};
}

// The batch exactly as a step gets it: the trainer's views, and for tokens what the language model makes of them.
Batch deliver(data::HostBatch host) {
  Batch batch = to_batch(std::move(host), Split::train, at::kCPU);
  if (batch.has("tokens")) {
    const at::Tensor tokens = batch["tokens"].to(at::kLong);
    batch.set("input", tokens.narrow(1, 0, kContext));
    batch.set("target", tokens.narrow(1, 1, kContext));
  }
  return batch;
}

Json measure(data::Loader& loader, double seconds) {
  std::int64_t rows = 0;
  std::int64_t batches = 0;
  std::vector<double> turns;
  const double began = steady_seconds();
  double now = began;
  do {
    while (auto host = loader.next()) {
      const Batch batch = deliver(std::move(*host));
      rows += batch.rows();
      ++batches;
    }
    const double ended = steady_seconds();
    if (auto first = loader.next()) {
      const Batch batch = deliver(std::move(*first));
      rows += batch.rows();
      ++batches;
    }
    now = steady_seconds();
    turns.push_back(now - ended);
  } while (now - began < seconds);
  std::sort(turns.begin(), turns.end());
  return {{"rate", static_cast<double>(rows) / (now - began)},
          {"batch_us", (now - began) * 1e6 / static_cast<double>(batches)},
          {"turn_us_p50", turns[turns.size() / 2] * 1e6},
          {"turn_us_max", turns.back() * 1e6},
          {"readers", loader.readers_reason()}};
}

// Returns the bytes of one sample, in the order in which compare.py hashes them.
std::string sample_bytes(const Batch& batch, const std::vector<std::string>& names, std::int64_t row) {
  std::string bytes;
  for (const std::string& name : names) {
    const at::Tensor sample = batch[name].select(0, row).contiguous();
    bytes.append(static_cast<const char*>(sample.const_data_ptr()), sample.nbytes());
  }
  return bytes;
}

Json digest(data::Loader& loader, const std::vector<std::string>& names) {
  std::uint64_t sum = 0;
  std::int64_t rows = 0;
  while (auto host = loader.next()) {
    const Batch batch = deliver(std::move(*host));
    for (std::int64_t row = 0; row < batch.rows(); ++row, ++rows) {
      Sha256 hash;
      hash.update(sample_bytes(batch, names, row));
      const std::array<std::uint8_t, 32> bytes = hash.digest();
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data(), sizeof word);
      sum += word;
    }
  }
  return {{"digest", std::to_string(sum)}, {"rows", rows}};
}

std::string stream(data::Loader loader, const std::vector<std::string>& names) {
  Sha256 hash;
  for (int epoch = 0; epoch < 2; ++epoch) {
    while (auto host = loader.next()) {
      const Batch batch = deliver(std::move(*host));
      for (std::int64_t row = 0; row < batch.rows(); ++row) hash.update(sample_bytes(batch, names, row));
    }
  }
  return hash.hex();
}

// A workload that a file describes. It is opened once, and its first pass fills its cache.
struct Described {
  data::OpenWorkload open;
  data::Loader loader;
  explicit Described(data::OpenWorkload opened) : open(std::move(opened)), loader(open.pipeline, open.options) {}
};

// The loader's upper limit: the rate of reading alone, into the same memory again and again.
Json bound(Described& described, double seconds) {
  const std::vector<data::Dataset>& datasets = described.open.pipeline.datasets;
  const int threads = std::max({1, described.loader.readers(), static_cast<int>(std::thread::hardware_concurrency())});
  std::atomic<std::int64_t> samples{0};
  std::vector<std::thread> readers;
  const double began = steady_seconds();
  for (int reader = 0; reader < threads; ++reader) {
    readers.emplace_back([&, reader] {
      // Each thread reads one data set. If a group has several, any of them will do, because their samples cost the same.
      const data::Source& source = *datasets[static_cast<std::size_t>(reader) % datasets.size()].source;
      const std::int64_t count = std::min(source.samples_per_ticket(), described.open.options.batch_size);
      std::vector<std::vector<std::byte>> memory;
      std::vector<std::byte*> fields;
      for (const Field& field : source.fields()) {
        memory.emplace_back(field.bytes() * static_cast<std::size_t>(count));
        fields.push_back(memory.back().data());
      }
      const std::vector<std::int64_t> positions(static_cast<std::size_t>(count), 0);
      std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
      Philox draw(static_cast<std::uint64_t>(reader));
      while (steady_seconds() - began < seconds) {
        for (std::int64_t& index : indices)
          index = static_cast<std::int64_t>(draw.below(static_cast<std::uint64_t>(source.size())));
        source.read(indices, data::Rows{fields}, data::ReadRandom(1, 0, positions));
        samples += count;
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  return {{"rate", static_cast<double>(samples) / (steady_seconds() - began)}, {"threads", threads}};
}

Json stream_of(const data::OpenWorkload& open) {
  Json streams = Json::object();
  for (const int readers : {0, 1, 2, 8}) {
    data::LoaderOptions options = open.options;
    options.readers = readers;
    data::Loader loader(open.pipeline, options);
    Sha256 hash;
    for (int epoch = 0; epoch < 2; ++epoch) {
      while (const auto batch = loader.next()) {
        for (const data::HostBatch::Group& group : batch->groups) {
          for (std::size_t f = 0; f < group.fields.size(); ++f) {
            hash.update({reinterpret_cast<const char*>(group.data[f]), group.fields[f].bytes() * group.positions.size()});
          }
        }
      }
    }
    streams[std::to_string(readers)] = hash.hex();
  }
  return streams;
}

Json answer(Described& described, std::istream& words) {
  std::string verb;
  double seconds = 0;
  std::int64_t passes = 0;
  words >> verb >> seconds >> passes;
  if (verb == "bound") return bound(described, seconds);
  if (verb == "streams") return stream_of(described.open);
  if (verb == "digest") {
    described.loader.restart();
    const data::StreamDigest digest = data::digest_epoch(described.loader);
    return {{"digest", digest.digest}, {"rows", digest.samples}};
  }
  ConvolutionStep step(passes);
  const auto consume = [&](data::HostBatch host) {
    const Batch batch = to_batch(std::move(host), Split::train, at::kCPU);
    if (passes > 0) step();
  };
  if (verb == "ceiling") return {{"rate", replayed_rate(described.open.pipeline, described.open.options, seconds, consume)}};
  const data::LoaderRates rates = data::measure_loader(described.loader, seconds, consume);
  Json reply = rates.to_json();
  reply["rate"] = reply["samples_per_s"];
  reply["readers"] = described.loader.readers_reason();
  if (described.open.cache) reply["cache_hit_rate"] = described.open.cache->counters().hit_rate();
  return reply;
}

Json answer(const Workload& workload, data::Loader& loader, std::istream& words) {
  std::string verb;
  double seconds = 0;
  words >> verb >> seconds;
  loader.restart();
  if (verb == "time") return measure(loader, seconds);
  if (verb == "digest") return digest(loader, workload.delivered);
  Json streams = Json::object();
  for (const int readers : {0, 1, 2, 8}) streams[std::to_string(readers)] = stream(open(workload, readers), workload.delivered);
  return streams;
}

// A workload of one of the two built-in names, with its loader.
struct BuiltIn {
  explicit BuiltIn(Workload made) : workload(std::move(made)), loader(open(workload, -1)) {}
  Workload workload;
  data::Loader loader;
};

int run(const std::string& folder) {
  std::map<std::string, BuiltIn> built_in;
  std::map<std::string, Described> described;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    Json reply;
    if (name == "passes") {
      double milliseconds = 0;
      words >> milliseconds;
      reply = {{"passes", ConvolutionStep::for_milliseconds(milliseconds).passes()}};
    } else if (name == "rows" || name == "tokens") {
      const auto it = built_in.try_emplace(name, name == "rows" ? rows_of(folder) : tokens_of(folder)).first;
      reply = answer(it->second.workload, it->second.loader, words);
    } else {
      auto it = described.find(name);
      if (it == described.end()) {
        it = described.try_emplace(name, data::open_workload(data::read_workload(folder + "/" + name + ".json"), folder)).first;
      }
      reply = answer(it->second, words);
    }
    std::cout << reply.dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: bench_loader FOLDER   (started by bench/loader/compare.py)\n";
    return 2;
  }
  try {
    return millrace::run(argv[1]);
  } catch (const millrace::Error& error) {
    std::cerr << error.what() << '\n';
    return error.exit_code();
  }
}
