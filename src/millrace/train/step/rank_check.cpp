#include "millrace/train/step/rank_check.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <sched.h>
#include <torch/nn/module.h>
#include <torch/version.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/hash.h"
#include "millrace/base/version.h"
#include "millrace/core/scalar_type.h"
#include "millrace/device/device.h"
#include "millrace/kernels/kernels.h"
#include "millrace/system/process.h"

namespace millrace {
namespace {

// The cores that this process may use, as "0,1,4".
std::string allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return "?";
  std::string text;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) text += (text.empty() ? "" : ",") + std::to_string(core);
  }
  return text;
}

std::string named(std::size_t rank, const Json& host) {
  return "rank " + std::to_string(rank) + " on " + host.get<std::string>();
}

// Collects {path: value} of the keys that must be equal on all ranks.
Json binding_values(const config::Schema& schema, const Json& config) {
  Json values = Json::object();
  for (const config::Leaf& leaf : schema.leaves) {
    if (leaf.free_on_resume && !leaf.path.starts_with("distributed.")) continue;
    const auto place = config::pointer_to(leaf.path);
    if (config.contains(place)) values[leaf.path] = config.at(place);
  }
  return values;
}

void add_differences(const Json& first, const Json& other, const std::string& who, std::vector<std::string>& lines) {
  constexpr std::size_t kMost = 8;
  for (const auto& [key, value] : first.items()) {
    const Json own = other.value(key, Json());
    if (own == value || lines.size() >= kMost) continue;
    std::string line = who;
    line.append(" has ").append(key).append(" ").append(own.dump()).append(", but rank 0 has ").append(value.dump());
    lines.push_back(std::move(line));
  }
}

std::uint32_t digest_of(const at::Tensor& value) {
  const at::Tensor host = value.detach().to(at::kCPU).contiguous();
  return crc32c(std::span(static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()));
}

std::string crc_text(const std::string& text) {
  return std::to_string(crc32c(std::as_bytes(std::span(text.data(), text.size()))));
}

}  // namespace

void check_alike(Agreement& agreement, const config::Schema& schema, const Json& config) {
  if (agreement.alone()) return;
  const Json values = binding_values(schema, config);
  const Json mine = {
      {"host", host_name()},
      {"program", {{"its program of version", kVersion}, {"its program's build", build_id()}, {"LibTorch", TORCH_VERSION}}},
      {"cpu", {{"ATen's instructions", device::cpu_info().capability}, {"kernels for", kernels::instruction_set()}}},
      {"config", values}};
  const std::vector<Json> all = agreement.gather(mine);
  std::vector<std::string> program, cpu, keys;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const std::string who = named(rank, all[rank].at("host"));
    add_differences(all[0].at("program"), all[rank].at("program"), who, program);
    add_differences(all[0].at("cpu"), all[rank].at("cpu"), who, cpu);
    add_differences(all[0].at("config"), all[rank].at("config"), who, keys);
    add_differences(all[rank].at("config"), all[0].at("config"), who, keys);
  }
  const auto refuse = [&](const char* what, const std::vector<std::string>& lines, const char* next) {
    if (lines.empty()) return;
    std::string text;
    for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
    throw DistributedError({what, text, next});
  };
  refuse("the ranks do not run the same program", program, "install the same version on all machines");
  refuse("the ranks compute with different instructions, so their weights would drift apart", cpu,
         "let all of them use instructions that every machine has: MILLRACE_CPU=avx2 and ATEN_CPU_CAPABILITY=avx2");
  refuse("the ranks have different values in their config", keys,
         "start all ranks by the same command, with the same files and variables");
}

void check_same_data(Agreement& agreement, const Json& training, const Json& validation) {
  if (agreement.alone()) return;
  // One gather for both identities, because a rank whose folder lacks the validation data must take part too.
  const std::vector<Json> all = agreement.gather(
      {{"host", host_name()}, {"training", crc_text(training.dump())}, {"validation", crc_text(validation.dump())}});
  for (const char* const split : {"training", "validation"}) {
    std::string who;
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank].at(split) != all[0].at(split)) who += (who.empty() ? "" : ", ") + named(rank, all[rank].at("host"));
    }
    if (who.empty()) continue;
    throw DistributedError({std::string("the ") + split + " data of " + who + " differs from that of rank 0",
                            "data.dir and the other keys that name the input",
                            "copy the data of rank 0's machine, or have all machines read the same folder"});
  }
}

void check_same_weights(Agreement& agreement, const torch::nn::Module& model, std::int64_t step) {
  if (agreement.alone()) return;
  std::uint64_t digest = 0;
  for (const at::Tensor& value : model.parameters()) digest = digest * 1000003 + digest_of(value);
  for (const at::Tensor& value : model.buffers()) digest = digest * 1000003 + digest_of(value);
  const std::vector<Json> all = agreement.gather({{"host", host_name()}, {"digest", digest}});
  std::map<std::uint64_t, std::size_t> counts;
  for (const Json& each : all) ++counts[each.at("digest").get<std::uint64_t>()];
  if (counts.size() == 1) return;
  const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  const bool known = most->second * 2 > all.size();
  std::string who;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (known && all[rank].at("digest").get<std::uint64_t>() == most->first) continue;
    who += (who.empty() ? "" : ", ") + named(rank, all[rank].at("host"));
  }
  throw DistributedError(
      {known ? "the weights of " + who + " are not those of the other ranks"
             : "the weights of " + who + " differ, and there is no majority to decide which weights are right",
       "after step " + std::to_string(step) + "; distributed.check_every",
       "the memory or a core of a machine may be faulty; resume the run from the last snapshot before this step"});
}

CoreShare core_share(Agreement& agreement, int cores) {
  if (agreement.alone()) return {cores, 1};
  const Json mine = {{"host", host_name()}, {"cores", allowed_cores()}};
  const std::vector<Json> all = agreement.gather(mine);
  const auto sharers = static_cast<int>(std::ranges::count(all, mine));
  return {std::max(1, cores / sharers), sharers};
}

namespace {

void share_tensors(Agreement& agreement, Tensors& tensors, const Json& shapes) {
  std::vector<at::Tensor> values;
  for (const auto& [name, shape] : shapes.items()) {
    const auto own = tensors.find(name);
    values.push_back(own != tensors.end()
                         ? own->second
                         : at::empty(shape.at("size").get<std::vector<std::int64_t>>(),
                                     at::TensorOptions(static_cast<at::ScalarType>(shape.at("type").get<int>()))));
  }
  agreement.share_from_root(values);
  std::size_t next = 0;
  for (const auto& [name, shape] : shapes.items()) tensors[name] = values[next++];
}

Json shapes_of(const Tensors& tensors) {
  Json shapes = Json::object();
  for (const auto& [name, tensor] : tensors)
    shapes[name] = {{"size", tensor.sizes().vec()}, {"type", static_cast<int>(tensor.scalar_type())}};
  return shapes;
}

}  // namespace

void share_content(Agreement& agreement, snapshot::Content& content) {
  if (agreement.alone()) return;
  Json mine;
  if (agreement.ranks().rank == 0) {
    mine = {{"step", content.step}, {"config", content.config}, {"report", content.report}};
    mine["models"] = mine["parts"] = mine["json"] = Json::object();
    for (const auto& [name, tensors] : content.models) mine["models"][name] = shapes_of(tensors);
    for (const auto& [name, state] : content.parts) {
      mine["parts"][name] = shapes_of(state.tensors);
      mine["json"][name] = state.json;
    }
  }
  const Json root = agreement.from_root(std::move(mine));
  content.step = root.at("step").get<std::int64_t>();
  content.config = root.at("config");
  content.report = root.at("report");
  for (const auto& [name, shapes] : root.at("models").items()) share_tensors(agreement, content.models[name], shapes);
  for (const auto& [name, shapes] : root.at("parts").items()) {
    share_tensors(agreement, content.parts[name].tensors, shapes);
    content.parts[name].json = root.at("json").at(name);
  }
}

}  // namespace millrace
