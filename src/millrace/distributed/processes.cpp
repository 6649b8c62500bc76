#include "millrace/distributed/processes.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "millrace/base/doing.h"
#include "millrace/base/error.h"
#include "millrace/device/device.h"
#include "millrace/distributed/detail/address.h"
#include "millrace/distributed/detail/device_groups.h"
#include "millrace/distributed/detail/gradient_buckets.h"
#include "millrace/distributed/detail/ordered_sum.h"
#include "millrace/distributed/detail/parcels.h"
#include "millrace/distributed/detail/transport.h"
#include "millrace/distributed/detail/within.h"
#include "millrace/system/process.h"

namespace millrace::distributed {
namespace {

constexpr std::int64_t kSlot = 512;  // bytes for each rank in the first round; longer values need a second round
constexpr std::int64_t kLength = 8;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

bool is_loopback(const std::string& host) {
  const std::string own = address_towards(host);
  return own.starts_with("127.") || own == "::1";
}

c10::intrusive_ptr<c10d::Store> open_store(Rendezvous& rendezvous, const ProcessesOptions& options) {
  c10d::TCPStoreOptions store;
  store.isServer = rendezvous.ranks.rank == 0 && !rendezvous.is_served;
  if (store.isServer) store.masterListenFd = listen_on(rendezvous.host, rendezvous.port);
  store.port = static_cast<std::uint16_t>(rendezvous.port);
  store.numWorkers = rendezvous.ranks.world_size;
  store.waitWorkers = false;
  store.timeout = milliseconds(options.join_s);
  try {
    return c10::make_intrusive<c10d::TCPStore>(rendezvous.host, store);
  } catch (const std::exception& error) {
    throw DistributedError({"rank " + std::to_string(rendezvous.ranks.rank) + " found no process at " + rendezvous.host + ":" +
                                std::to_string(rendezvous.port) + " within " + std::to_string(std::lround(options.join_s)) + " s",
                            "the meeting point that " + rendezvous.launcher + " gave",
                            "see whether rank 0 runs, and whether a firewall lets its port through"});
  }
}

}  // namespace

struct Processes::Parts {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  std::unique_ptr<DeviceGroups> groups;  // null: Gloo carries all tensors

  [[nodiscard]] bool carries(const at::Tensor& value) const { return groups && groups->carries(value); }

  // Makes separate connections between all ranks. Collective.
  [[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroupGloo> connect(const std::string& name, const Rendezvous& rendezvous,
                                                                   const ProcessesOptions& options) const {
    auto group = c10d::ProcessGroupGloo::Options::create(milliseconds(options.timeout_s));
    const char* interface = ::getenv("GLOO_SOCKET_IFNAME");
    group->devices.push_back(interface != nullptr && *interface != '\0'
                                 ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                                 : c10d::ProcessGroupGloo::createDeviceForHostname(address_towards(rendezvous.host)));
    return c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(name, store), rendezvous.ranks.rank,
                                                       rendezvous.ranks.world_size, group);
  }
};

Processes::Processes(Rendezvous rendezvous, ProcessesOptions options)
    : rendezvous_(std::move(rendezvous)), options_(options), parts_(std::make_unique<Parts>()) {
  const Doing task(Doing::Level::task, "the meeting of the ranks");
  const Ranks& ranks = rendezvous_.ranks;
  const auto shared = open_store(rendezvous_, options_);
  parts_->store = c10::make_intrusive<c10d::PrefixStore>("millrace/" + std::to_string(rendezvous_.attempt), shared);
  c10d::Store& store = *parts_->store;
  std::vector<std::string> all;
  all.reserve(static_cast<std::size_t>(ranks.world_size));
  for (int rank = 0; rank < ranks.world_size; ++rank) all.push_back("here/" + std::to_string(rank));
  if (store.add("taken/" + std::to_string(ranks.rank), 1) != 1) {
    throw DistributedError({"another process already has rank " + std::to_string(ranks.rank), "the environment of this process",
                            "give each process a different rank; if another run uses the same port, choose another port"});
  }
  store.set(all[static_cast<std::size_t>(ranks.rank)], bytes_of(host_name()));
  try {
    store.wait(all, milliseconds(options_.join_s));
  } catch (const std::exception&) {
    std::vector<int> absent;
    for (int rank = 0; rank < ranks.world_size; ++rank) {
      if (!store.check({all[static_cast<std::size_t>(rank)]})) absent.push_back(rank);
    }
    const bool unreachable = ranks.world_size > ranks.local_world_size && is_loopback(rendezvous_.host);
    throw DistributedError({ranks_text(absent) + " of " + std::to_string(ranks.world_size) + " did not join within " +
                                std::to_string(std::lround(options_.join_s)) + " s",
                            rendezvous_.host + ":" + std::to_string(rendezvous_.port),
                            unreachable ? "on this machine " + rendezvous_.host +
                                              " is a loopback address (see /etc/hosts), which no other machine reaches: give "
                                              "another address of this machine with MASTER_ADDR, or --at of millrace launch"
                                        : "look at their output"});
  }
  call([&] { parts_->gloo = parts_->connect("gloo", rendezvous_, options_); });
}

Processes::~Processes() = default;

Ranks Processes::ranks() const { return rendezvous_.ranks; }

Chosen<std::string> Processes::use_device(at::Device device, const std::string& wish) {
  std::string why_none;
  device::RankGroups* const groups = device::backend_of(device).rank_groups(why_none);
  return use_groups(device, groups, why_none, wish);
}

Chosen<std::string> Processes::use_groups(at::Device device, device::RankGroups* groups, const std::string& why_none,
                                          const std::string& wish) {
  const int gpu = device.has_index() ? device.index() : 0;
  RankDevice mine{.host = host_name(), .gpu = {}, .library = {}, .why_none = why_none};
  if (groups != nullptr) {
    mine.gpu = groups->identity(gpu);
    mine.library = groups->library();
  } else if (!device.is_cpu()) {
    mine.gpu = device.str();
  }
  std::vector<RankDevice> all;
  for (const Json& rank : gather(mine.to_json())) all.push_back(RankDevice::of(rank));
  Chosen<std::string> transport = choose_transport(all, wish);
  if (transport.value == "gloo") return transport;
  const Ranks& ranks = rendezvous_.ranks;
  try {
    parts_->groups = std::make_unique<DeviceGroups>(*groups, device,
                                                    device::RankGroups::Seat{.store = parts_->store,
                                                                             .rank = ranks.rank,
                                                                             .world_size = ranks.world_size,
                                                                             .gpu = gpu,
                                                                             .timeout = milliseconds(options_.timeout_s)});
  } catch (const std::exception& error) {
    const std::string reason = error.what();
    throw DistributedError({"the ranks' GPUs can't connect: " + reason.substr(0, reason.find('\n')),
                            "rank " + std::to_string(ranks.rank) + " on " + mine.host + ", " + device.str() + ", " + mine.library,
                            "NCCL_DEBUG=INFO says more; distributed.transport=gloo uses host memory instead"});
  }
  return transport;
}

void Processes::leave() {
  has_left_ = true;
  cut_groups();
}

void Processes::cut_groups() {
  if (parts_->groups && !parts_->groups->cut()) has_cut_sums_ = true;
}

void Processes::call(const std::function<void()>& collective) {
  const Doing subject(Doing::Level::subject, "the other ranks");
  try {
    collective();
  } catch (const std::exception& error) {
    throw_lost_rank(error.what());
  }
}

namespace {

// Reports in the store that this rank remains, and returns the ranks that do not report, because these are gone or hang.
std::vector<int> absent_ranks(c10d::Store& store, Ranks ranks) {
  constexpr int kRollCallMs = 400;
  store.setTimeout(std::chrono::milliseconds(kRollCallMs));
  store.set("left/" + std::to_string(ranks.rank), bytes_of("1"));
  std::this_thread::sleep_for(std::chrono::milliseconds(kRollCallMs));
  std::vector<int> absent;
  for (int rank = 0; rank < ranks.world_size; ++rank) {
    if (rank != ranks.rank && !store.check({"left/" + std::to_string(rank)})) absent.push_back(rank);
  }
  return absent;
}

}  // namespace

void Processes::throw_lost_rank(const std::string& reason) {
  constexpr double kLimit = 1.2;  // seconds; the store may be behind a broken link
  cut_groups();
  const Ranks& ranks = rendezvous_.ranks;
  std::string who = "another rank";
  try {
    const auto absent = within(kLimit, [store = parts_->store, ranks] { return absent_ranks(*store, ranks); });
    if (!absent) who = "the machine at " + rendezvous_.host;
    if (absent && !absent->empty()) who = ranks_text(*absent);
  } catch (const std::exception&) {
    if (!rendezvous_.is_served && ranks.rank != 0) who = "rank 0, which held the store,";
  }
  throw DistributedError(
      {"rank " + std::to_string(ranks.rank) + " lost " + who + " (" + reason.substr(0, reason.find('\n')) + ")",
       "rank " + std::to_string(ranks.rank) + " of " + std::to_string(ranks.world_size) + " on " + host_name(),
       "find out why the lost process ended or hangs: the last lines that it printed may give the reason; the same command "
       "resumes from the last snapshot"});
}

std::vector<Json> Processes::gather(Json mine) {
  if (has_left_) return {std::move(mine)};
  const at::NoGradGuard no_grad;
  const std::vector<std::uint8_t> packed = Json::to_cbor(mine);
  const auto length = static_cast<std::int64_t>(packed.size());
  const auto world = static_cast<std::int64_t>(rendezvous_.ranks.world_size);
  const auto round = [&](std::int64_t slot) {
    std::vector<at::Tensor> own = {at::zeros({slot}, at::kByte)};
    auto* bytes = own[0].mutable_data_ptr<std::uint8_t>();
    std::memcpy(bytes, &length, kLength);
    std::memcpy(bytes + kLength, packed.data(), static_cast<std::size_t>(std::min(length, slot - kLength)));
    std::vector<std::vector<at::Tensor>> all(1);
    for (std::int64_t rank = 0; rank < world; ++rank) all[0].push_back(at::empty({slot}, at::kByte));
    ++exchanges_;
    call([&] { parts_->gloo->allgather(all, own)->wait(); });
    return all[0];
  };
  const auto length_of = [](const at::Tensor& slot) {
    std::int64_t bytes = 0;
    std::memcpy(&bytes, slot.const_data_ptr<std::uint8_t>(), kLength);
    return bytes;
  };
  std::vector<at::Tensor> all = round(kSlot);
  std::int64_t longest = 0;
  for (const at::Tensor& slot : all) longest = std::max(longest, length_of(slot));
  MR_CHECK(longest >= 0, "a rank gave a value of a negative length");
  if (longest > kSlot - kLength) all = round(longest + kLength);
  std::vector<Json> values;
  for (const at::Tensor& slot : all) {
    const auto* begin = slot.const_data_ptr<std::uint8_t>() + kLength;
    values.push_back(Json::from_cbor(begin, begin + length_of(slot)));
  }
  return values;
}

void Processes::sum(std::vector<at::Tensor>& values) {
  if (has_left_) return;
  const at::NoGradGuard no_grad;
  std::map<std::pair<bool, at::ScalarType>, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < values.size(); ++i) alike[{parts_->carries(values[i]), values[i].scalar_type()}].push_back(i);
  for (const auto& [kind, indices] : alike) {
    const bool carried = kind.first;
    std::vector<at::Tensor> flat;
    for (const std::size_t i : indices) {
      const at::Tensor value = values[i].detach();
      flat.push_back((carried ? value : value.to(at::kCPU)).reshape({-1}));
    }
    const at::Tensor all = at::cat(flat);
    if (all.numel() == 0) continue;
    ++exchanges_;
    call([&] {
      c10d::Backend& way = carried ? parts_->groups->sums() : *parts_->gloo;
      OrderedSum(way, way, all).finish();
    });
    std::int64_t begin = 0;
    for (const std::size_t i : indices) {
      values[i].detach().copy_(all.narrow(0, begin, values[i].numel()).view_as(values[i]));
      begin += values[i].numel();
    }
  }
}

void Processes::share(std::vector<at::Tensor>& values, const std::vector<int>& owners) {
  MR_CHECK(values.size() == owners.size(), "each value has an owner");
  if (has_left_) {
    throw DistributedError(
        {"the other ranks can't be reached any more, because this rank ends with an error",
         "rank " + std::to_string(rendezvous_.ranks.rank) + " of " + std::to_string(rendezvous_.ranks.world_size),
         "the same command resumes from the last snapshot"});
  }
  const at::NoGradGuard no_grad;
  for (const bool carried : {false, true}) {
    std::vector<at::Tensor> alike;
    std::vector<int> theirs;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (parts_->carries(values[i]) != carried) continue;
      alike.push_back(values[i]);
      theirs.push_back(owners[i]);
    }
    if (!alike.empty()) share_alike(alike, theirs);
  }
}

// Shares values that travel by the same transport. In each round every owner sends one parcel, all at the same time.
void Processes::share_alike(std::vector<at::Tensor>& values, const std::vector<int>& owners) {
  const bool carried = parts_->carries(values.front());
  c10d::Backend& way = carried ? parts_->groups->sums() : *parts_->gloo;
  const auto like = at::TensorOptions(at::kByte).device(carried ? values.front().device() : at::Device(at::kCPU));
  const int world = rendezvous_.ranks.world_size;
  std::vector<std::vector<Parcel>> parcels;
  std::size_t rounds = 0;
  for (int owner = 0; owner < world; ++owner) {
    parcels.push_back(parcels_of(values, owners, owner));
    rounds = std::max(rounds, parcels.back().size());
  }
  for (std::size_t round = 0; round < rounds; ++round) {
    std::vector<std::pair<int, std::vector<at::Tensor>>> flats;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    ++exchanges_;
    call([&] {
      for (int owner = 0; owner < world; ++owner) {
        if (round >= parcels[static_cast<std::size_t>(owner)].size()) continue;
        const Parcel& parcel = parcels[static_cast<std::size_t>(owner)][round];
        flats.emplace_back(owner, std::vector<at::Tensor>{at::empty({parcel.bytes}, like)});
        if (owner == rendezvous_.ranks.rank) parcel.pack(values, flats.back().second[0]);
        c10d::BroadcastOptions from;
        from.rootRank = owner;
        works.push_back(way.broadcast(flats.back().second, from));
      }
      for (const auto& work : works) work->wait();
    });
    for (const auto& [owner, flat] : flats) {
      if (owner != rendezvous_.ranks.rank) parcels[static_cast<std::size_t>(owner)][round].unpack(flat[0], values);
    }
  }
}

std::unique_ptr<GradientSums> Processes::gradient_sums(const std::vector<at::Tensor>& parameters,
                                                       const GradientSumsOptions& options) {
  const auto all = [&](auto holds) { return std::ranges::all_of(parameters, holds); };
  const bool carried = all([this](const at::Tensor& parameter) { return parts_->carries(parameter); });
  if (has_left_ || !(carried || all([](const at::Tensor& parameter) { return parameter.is_cpu(); }))) return nullptr;
  BucketBackends backends{.to = {}, .back = {}, .second_stream = std::nullopt, .words = parts_->gloo};
  call([&] {
    const std::string name = "gradients/" + std::to_string(gradient_groups_++);
    if (carried) {
      backends.to = backends.back = parts_->groups->connect(name);
      backends.second_stream = parts_->groups->second_stream();
      return;
    }
    backends.to = backends.back = parts_->connect(name, rendezvous_, options_);  // two ranks need only one set of connections
    if (rendezvous_.ranks.world_size > 2) backends.back = parts_->connect(name + "/back", rendezvous_, options_);
  });
  return std::make_unique<GradientBuckets>(std::move(backends), parameters, options,
                                           [this](const std::function<void()>& collective) { call(collective); });
}

}  // namespace millrace::distributed
