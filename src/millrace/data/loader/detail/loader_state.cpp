#include "millrace/data/loader/detail/loader_state.h"

#include <algorithm>
#include <type_traits>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace::data::detail {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr const char* kWhere = "loader state of the snapshot";

[[noreturn]] void damaged_state(const std::string& what) {
  throw SnapshotError({.what = what, .where = kWhere, .next = "resume from another snapshot"});
}

template <class T>
T take(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) damaged_state("the loader's state has no \"" + std::string(key) + "\"");
  bool fits = false;
  if constexpr (std::is_same_v<T, std::string>) fits = found->is_string();
  if constexpr (std::is_same_v<T, bool>) fits = found->is_boolean();
  if constexpr (std::is_same_v<T, std::uint64_t>)
    fits = found->is_number_unsigned() || (found->is_number_integer() && *found >= 0);
  if constexpr (std::is_same_v<T, std::int64_t>) fits = found->is_number_integer();
  if (!fits) damaged_state("\"" + std::string(key) + "\" of the loader's state is " + quoted(found->dump().substr(0, 80)));
  return found->get<T>();
}

std::string text_of(const std::string& value) { return quoted(value); }
std::string text_of(bool value) { return value ? "true" : "false"; }
template <class T>
std::string text_of(T value) {
  return std::to_string(value);
}

template <class T>
void expect_same(const T& saved, const T& now, const std::string& name, const std::string& next) {
  if (saved == now) return;
  throw SnapshotError({.what = "the snapshot was made with " + name + " " + text_of(saved) + ", this run has " + text_of(now),
                       .where = kWhere,
                       .next = next});
}

Quarantine take_quarantine(const Json& json, const BatchWork& work) {
  Quarantine quarantine;
  const auto found = json.find("quarantine");
  if (found == json.end() || !found->is_array()) damaged_state("the loader's state has no list \"quarantine\"");
  for (const Json& entry : *found) {
    const bool pair = entry.is_array() && entry.size() == 2 && entry[0].is_number_integer() && entry[1].is_number_integer();
    if (!pair) damaged_state("an entry of \"quarantine\" is not [data set, sample]");
    const auto group = entry[0].get<std::int64_t>();
    const auto index = entry[1].get<std::int64_t>();
    const auto groups = static_cast<std::int64_t>(work.datasets().size());
    if (group < 0 || group >= groups || index < 0 || index >= work.datasets()[static_cast<std::size_t>(group)].source->size()) {
      damaged_state("\"quarantine\" names sample " + std::to_string(index) + " of data set " + std::to_string(group) +
                    ", which does not exist");
    }
    quarantine.emplace(static_cast<std::size_t>(group), index);
  }
  return quarantine;
}

}  // namespace

std::string fingerprint_of(const std::vector<Dataset>& datasets) {
  if (datasets.size() == 1) return datasets.front().source->fingerprint();
  std::string text;
  for (const Dataset& dataset : datasets) {
    if (!text.empty()) text += "; ";
    text += dataset.name + '=' + dataset.source->fingerprint();
  }
  return text;
}

Json to_json(const LoaderState& state) {
  Json quarantine = Json::array();
  for (const auto& [group, index] : state.quarantine) quarantine.push_back(Json::array({group, index}));
  Json json = {{"version", kVersion},
               {"fingerprint", state.fingerprint},
               {"seed", state.seed},
               {"global_batch_size", state.global_batch_size},
               {"shuffle", state.shuffle},
               {"drop_last", state.drop_last},
               {"epoch", state.epoch},
               {"next_batch", state.next_batch},
               {"bad_in_epoch", state.bad_in_epoch},
               {"quarantine", std::move(quarantine)}};
  if (!state.order.empty()) json["order"] = state.order;
  return json;
}

LoaderState loader_state_from(const Json& json, const LoaderState& current, const BatchWork& work, DataCheck data) {
  if (!json.is_object()) damaged_state("the loader's state is not an object");
  const auto version = take<std::int64_t>(json, "version");
  if (version != kVersion)
    damaged_state("the loader's state has version " + std::to_string(version) + ", this program reads version 1");
  LoaderState state{.fingerprint = take<std::string>(json, "fingerprint"),
                    .seed = take<std::uint64_t>(json, "seed"),
                    .global_batch_size = take<std::int64_t>(json, "global_batch_size"),
                    .shuffle = take<bool>(json, "shuffle"),
                    .drop_last = take<bool>(json, "drop_last"),
                    .epoch = take<std::uint64_t>(json, "epoch"),
                    .next_batch = take<std::uint64_t>(json, "next_batch"),
                    .bad_in_epoch = take<std::uint64_t>(json, "bad_in_epoch"),
                    .order = json.contains("order") ? take<std::string>(json, "order") : "",
                    .quarantine = {}};
  const std::string anew = ", or begin a new run";
  const bool is_other = data == DataCheck::changed || (data == DataCheck::unknown && state.fingerprint != current.fingerprint);
  if (is_other) {
    state.next_batch = std::min(state.next_batch, work.batches_per_epoch());
  } else {
    expect_same(state.fingerprint, current.fingerprint, "data of fingerprint", "give the data with which the run began" + anew);
  }
  const auto grouping = [](const std::string& order) { return order.empty() ? std::string("each") : order; };
  if (!is_other) {
    expect_same(grouping(state.order), grouping(current.order), "data sets grouped as",
                "give the data sets the grouping, batch sizes and weights that they had" + anew);
  }
  expect_same(state.seed, current.seed, "seed", "set train.seed as it was" + anew);
  expect_same(state.global_batch_size, current.global_batch_size, "a batch size over all ranks of",
              "set data.batch_size so that ranks times batch size is as it was" + anew);
  expect_same(state.shuffle, current.shuffle, "shuffle", "set data.shuffle as it was" + anew);
  expect_same(state.drop_last, current.drop_last, "drop_last", "set data.drop_last as it was" + anew);
  std::uint64_t sequence = 0;
  if (state.next_batch > work.batches_per_epoch() || __builtin_mul_overflow(state.epoch, work.batches_per_epoch(), &sequence) ||
      sequence > (std::uint64_t{1} << 62U) / work.tickets()) {
    damaged_state("the loader's state is at batch " + std::to_string(state.next_batch) + " of epoch " +
                  std::to_string(state.epoch) + ", but an epoch has " + std::to_string(work.batches_per_epoch()) + " batches");
  }
  if (!is_other) state.quarantine = take_quarantine(json, work);
  return state;
}

}  // namespace millrace::data::detail
