// Our half of the loader's bench: answers one command per line of standard input with one line of JSON. compare.py is the other.
//   bench_loader FOLDER
//     WORKLOAD time SECONDS    batches for that long: rate, microseconds per batch, epoch turn-round
//     WORKLOAD digest          sum over all samples of an epoch of the hash of their bytes, so that order does not matter
//     WORKLOAD streams         hash of two epochs in order, for 0, 1, 2 and 8 readers
// WORKLOAD is rows (x.bin, y.bin: f32 [20] and [5]) or tokens (tokens.bin: u16; windows of 257).
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/hash.h"
#include "millrace/core/batch.h"
#include "millrace/data/loader.h"
#include "millrace/data/memory_source.h"
#include "millrace/data/token_source.h"
#include "millrace/train/feed.h"

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
  std::vector<std::string> delivered;  // tensors a step would take, in order
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

// Exactly what a step gets: the trainer's views, and for tokens what the language model makes of them.
Batch deliver(data::HostBatch host) {
  Batch batch = to_batch(std::move(host), at::kCPU);
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

// Bytes of one sample in the order compare.py hashes them.
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

int run(const std::string& folder) {
  const Workload rows = rows_of(folder);
  const Workload tokens = tokens_of(folder);
  data::Loader rows_loader = open(rows, -1);
  data::Loader tokens_loader = open(tokens, -1);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string workload;
    words >> workload;
    const Json reply = workload == "rows" ? answer(rows, rows_loader, words) : answer(tokens, tokens_loader, words);
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
