#include "recipes/neural_response/sessions/dataset_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <tuple>

#include "millrace/base/format.h"
#include "recipes/neural_response/sessions/dataset_tree.h"
#include "recipes/neural_response/sessions/operations.h"

namespace millrace::recipes::neural_response {
namespace {

namespace stdfs = std::filesystem;

constexpr std::array<std::string_view, 12> kKeys = {"session",  "cids",      "types",      "session_dir", "sessions",
                                                    "sampling", "keys_lags", "transforms", "datafilters", "train_val_split",
                                                    "seed",     "data_dir"};
// Keys of VisionCore's files about the choice of units and the place of its pickle files. Millrace does not use these keys.
constexpr std::array<std::string_view, 11> kNotes = {"visual",    "qcmissing", "qccontam", "cids_qc", "cidsqc",   "contamth",
                                                     "missingth", "snr",       "eye",      "lab",     "directory"};
constexpr std::array<std::string_view, 4> kFieldNames = {"stim", "robs", "behavior", "dfs"};

// Adds a notice unless the list has it already, because a notice may be true of many sessions.
void add_once(std::vector<std::string>& notices, const std::string& text) {
  if (std::find(notices.begin(), notices.end(), text) == notices.end()) notices.push_back(text);
}

Operation basis_of_the_original() {
  return op::TemporalBasis{
      .num_cosine_funcs = 10, .history_bins = 50, .log_spacing = false, .peak_range_ms = {30, 200}, .causal = false};
}

std::vector<Transform> default_transforms() {
  return {{"stim", "stim", {op::PixelNorm{}, op::Unsqueeze{}}, "stim", false},
          {"eye_vel",
           "eyepos",
           {op::Diff{}, op::MaxNorm{}, op::SymLog{}, basis_of_the_original(), op::SplitRelu{}},
           "behavior",
           true},
          {"eye_pos", "eyepos", {}, "behavior", true}};
}

// True if the name is one of this recipe's fields. Any other name is either a typo, which is a problem, or an input of another
// model, which is a notice.
bool is_ours(const Node& node, const std::string& name, const std::string& what, const std::string& of,
             std::vector<std::string>& notices) {
  if (std::find(kFieldNames.begin(), kFieldNames.end(), name) != kFieldNames.end()) return true;
  const std::string hint = suggestion_among(name, kFieldNames);
  if (hint.starts_with("did you mean")) {
    node.problem("unknown " + what + " " + quoted(name) + of, hint);
  } else {
    add_once(notices, what + " " + quoted(name) + of + " is left out: no model here reads it");
  }
  return false;
}

// A key of a map, with the values by which in_order() sorts, because the tree does not keep the file's order.
struct Placed {
  std::string name;
  bool added = false;  // true: the key is in the session's file and comes after the parent's keys
  std::int64_t line = 0;
};

std::vector<Placed> in_order(const Node& map, const Tree& parent) {
  std::vector<Placed> keys;
  std::vector<Problem> ignored;
  for (const std::string& name : map.keys()) {
    const bool added = !parent.places.contains(map.path() + "." + name);
    keys.push_back({name, added, added ? map.at(name).line() : Node(parent, ignored).at(map.path()).at(name).line()});
  }
  std::stable_sort(keys.begin(), keys.end(),
                   [](const Placed& a, const Placed& b) { return std::pair(a.added, a.line) < std::pair(b.added, b.line); });
  return keys;
}

void check_transform(const Node& node, const Transform& transform) {
  const bool of_stim = transform.expose_as == "stim";
  const std::string name = "transform " + quoted(transform.name);
  if (transform.expose_as == "dfs")
    node.problem(name + " is exposed as dfs, but only filters make dfs", "write it under datafilters, or expose it as behavior");
  if ((of_stim || transform.expose_as == "robs") && transform.source != transform.expose_as)
    node.problem(name + " makes " + transform.expose_as + " of " + quoted(transform.source),
                 transform.expose_as + " is made of " + transform.expose_as + " alone");
  if (transform.expose_as == "behavior" && (transform.source == "stim" || transform.source == "robs"))
    node.problem(name + " makes behavior of " + transform.source, "take eyepos, or another dataset of the session files");
  for (const Operation& operation : transform.operations) {
    std::string text = why_not(operation, transform.expose_as);
    if (!text.empty()) node.problem(text.insert(0, name + ": "), "remove the operation");
  }
}

std::vector<Transform> transforms_of(const Node& map, const Tree& parent, std::vector<std::string>& notices) {
  if (map.is_empty()) return default_transforms();
  constexpr std::array<std::string_view, 4> kKnown = {"source", "ops", "expose_as", "concatenate"};
  map.must_be_map();
  std::vector<Transform> transforms;
  std::optional<Placed> joined;  // the last of the transforms whose results become columns next to each other
  for (const Placed& key : in_order(map, parent)) {
    const std::string& name = key.name;
    const Node node = map.at(name);
    node.only("key", kKnown);
    Transform transform{
        name, node.at("source").text(name), {}, node.at("expose_as").text(name), node.at("concatenate").truth(false)};
    if (!is_ours(node.at("expose_as"), transform.expose_as, "result", " of transform " + quoted(name), notices)) continue;
    transform.operations = operations_of(node.at("ops"));
    check_transform(node, transform);
    const auto same = std::find_if(transforms.begin(), transforms.end(),
                                   [&](const Transform& other) { return other.expose_as == transform.expose_as; });
    if (same != transforms.end() && (transform.expose_as != "behavior" || !transform.concatenate || !same->concatenate)) {
      node.problem("transforms " + quoted(same->name) + " and " + quoted(name) + " are both exposed as " + transform.expose_as,
                   transform.expose_as == "behavior" ? "write concatenate: true in both" : "keep one of them");
    }
    if (transform.expose_as == "behavior") {
      if (joined && joined->line == key.line && joined->added == key.added)
        node.problem("transforms " + quoted(joined->name) + " and " + quoted(name) + " are on the same line",
                     "write each on a separate line, because their order counts");
      joined = key;
    }
    transforms.push_back(std::move(transform));
  }
  return transforms;
}

Filters filters_of(const Node& map) {
  if (map.is_empty()) return {.n_lags = 32, .has_missing_pct = true};
  constexpr std::array<std::string_view, 2> kKnown = {"ops", "expose_as"};
  map.must_be_map();
  Filters filters;
  for (const std::string& name : map.keys()) {
    const Node node = map.at(name);
    node.only("key", kKnown);
    if (const std::string as = node.at("expose_as").text("dfs"); as != "dfs")
      node.problem("datafilters." + name + " is exposed as " + quoted(as), "filters make dfs");
    add_filters(node.at("ops"), filters);
  }
  return filters;
}

std::int64_t lags_of(const Node& keys_lags, std::vector<std::string>& notices) {
  keys_lags.must_be_map();
  for (const std::string& key : keys_lags.keys()) {
    const Node node = keys_lags.at(key);
    if (!is_ours(node, key, "key", " of keys_lags", notices) || key == "stim") continue;
    if (node.is_list() || node.whole(0) != 0)
      node.problem("keys_lags." + key + " is not 0", "only the stimulus has lags; write " + key + ": 0");
  }
  const Node stim = keys_lags.at("stim");
  if (stim.is_empty()) return 25;
  const std::vector<std::int64_t> lags = stim.wholes();
  for (std::size_t i = 0; i < lags.size(); ++i) {
    if (lags[i] == static_cast<std::int64_t>(i)) continue;
    stim.problem("keys_lags.stim is not 0, 1, 2, ...", "write all lags from 0 on, in order");
    break;
  }
  if (lags.empty()) stim.problem("keys_lags.stim has no lags", "write all lags from 0 on, in order");
  return static_cast<std::int64_t>(lags.size());
}

void note_transforms(const SessionFile& session, std::vector<std::string>& notices) {
  for (const Transform& transform : session.transforms) {
    for (const Operation& operation : transform.operations) {
      if (std::holds_alternative<op::MaxNorm>(operation))
        add_once(notices, "maxnorm takes the largest value of a whole session, validation included, as the original does");
      if (const auto* unsqueeze = std::get_if<op::Unsqueeze>(&operation); unsqueeze != nullptr && unsqueeze->axis == 0)
        add_once(notices, "unsqueeze: 0 makes the channel of the stimulus, as unsqueeze: 1 does");
      const auto* basis = std::get_if<op::TemporalBasis>(&operation);
      if (basis == nullptr || basis->bin_size_ms * session.target_rate == 1000.0) continue;
      const double real = 1000.0 / (session.target_rate * basis->bin_size_ms);
      add_once(notices, "temporal_basis: a bin lasts " + fixed(1000.0 / session.target_rate, 2) + " ms, but bin_size_ms says " +
                            significant(basis->bin_size_ms, 3) +
                            " ms. As in the original, bin_size_ms is used, so peaks given as " +
                            significant(basis->peak_range_ms[0], 3) + " to " + significant(basis->peak_range_ms[1], 3) +
                            " ms lie at " + significant(basis->peak_range_ms[0] * real, 3) + " to " +
                            significant(basis->peak_range_ms[1] * real, 3) + " ms");
    }
  }
}

class Reading {
 public:
  explicit Reading(const stdfs::path& path) : path_(path) {}

  DatasetFile read(std::int64_t max_sessions) {
    if (path_.extension() == ".dset") refuse_pickle(path_);
    const Tree parent = read_tree(path_, problems_);
    const Node root(parent, problems_);
    if (problems_.empty()) {
      root.only("key", kKeys, kNotes);
      const Node sessions = root.at("sessions");
      const std::vector<Node> items = sessions.items();
      if (items.empty()) root.problem("the file names no sessions", "write sessions: [NAME, ...]");
      if (static_cast<std::int64_t>(items.size()) > max_sessions)
        file_.notices.push_back("the first " + std::to_string(max_sessions) + " of " + std::to_string(items.size()) +
                                " sessions are used: recipe.max_datasets");
      for (std::size_t i = 0; i < items.size() && static_cast<std::int64_t>(i) < max_sessions; ++i) add(parent, items[i]);
    }
    if (!problems_.empty()) throw ConfigError(each_once());
    if (bad_rates_) throw DataError(*bad_rates_);
    return std::move(file_);
  }

  [[noreturn]] static void refuse_pickle(const stdfs::path& path) {
    throw DataError({path.filename().string() + " is a Python pickle", path.string(),
                     "run tools/dset_to_h5.py on it, and only if you trust it: a pickle can run any program"});
  }

 private:
  // Adds a session. `item` is either a name, whose file is in session_dir, or a map with all keys of the session.
  void add(const Tree& parent, const Node& item) {
    Tree own;
    own.file = parent.file;
    if (item.is_object()) {
      own.values = item.json();
      for (const auto& [path, place] : parent.places) {
        if (path.starts_with("sessions.")) own.places[path.substr(9)] = place;
      }
      own.file = item.place();
    } else {
      if (item.exists() && item.json().is_null()) {
        item.problem("a session is named null", "in YAML null, ~ and an empty item are no text: write the name in quotes");
        return;
      }
      const std::string name = item.text("");
      const stdfs::path path = session_path(parent, name);
      if (path.empty()) {
        item.problem("session " + quoted(name) + " has no file in " + quoted(session_folder(parent).string()),
                     "write " + name + ".yaml with its cids there, or correct session_dir");
        return;
      }
      own = read_tree(path, problems_);
      if (!own.values.contains("session") || own.values["session"].is_null()) own.values["session"] = name;
    }
    Tree base = parent;
    for (const char* key : {"sessions", "session_dir"}) base.values.erase(key);
    read_session(merged(base, own), base);
  }

  stdfs::path session_folder(const Tree& parent) {
    std::vector<Problem> ignored;
    return path_.parent_path() / Node(parent, ignored).at("session_dir").text("sessions");
  }
  stdfs::path session_path(const Tree& parent, const std::string& name) {
    for (const char* suffix : {".yaml", ".yml", ".json", ".toml"}) {
      stdfs::path path = session_folder(parent) / (name + suffix);
      std::error_code error;
      if (stdfs::is_regular_file(path, error)) return path;
    }
    return {};
  }

  void read_session(const Tree& tree, const Tree& parent) {
    const Node root(tree, problems_);
    const std::size_t before = problems_.size();
    root.only("key", kKeys, kNotes);
    SessionFile session;
    session.place = tree.file;
    session.name = root.at("session").text("");
    session.cids = root.at("cids").wholes();
    session.types = root.at("types").texts({"backimage"});
    const Node sampling = root.at("sampling");
    constexpr std::array<std::string_view, 2> kRates = {"source_rate", "target_rate"};
    sampling.only("key", kRates);
    session.source_rate = sampling.at("source_rate").number(session.source_rate);
    session.target_rate = sampling.at("target_rate").number(session.target_rate);
    session.lags = lags_of(root.at("keys_lags"), file_.notices);
    session.transforms = transforms_of(root.at("transforms"), parent, file_.notices);
    session.filters = filters_of(root.at("datafilters"));
    session.train_share = root.at("train_val_split").number(session.train_share);
    session.seed = static_cast<std::uint64_t>(root.at("seed").whole(1002));
    session.folder = path_.parent_path() / root.at("data_dir").text("");
    for (const char* key :
         {"session", "cids", "types", "sampling", "keys_lags", "transforms", "datafilters", "train_val_split", "seed"})
      session.options += std::string(key) + " " + (root.at(key).exists() ? root.at(key).json().dump() : "") + "\n";
    if (problems_.size() == before) check(root, session);
    set_ratio(sampling, session);
    if (problems_.size() == before) note_transforms(session, file_.notices);
    file_.sessions.push_back(std::move(session));
  }

  void check(const Node& root, const SessionFile& session) {
    const auto twice = std::find_if(file_.sessions.begin(), file_.sessions.end(),
                                    [&](const SessionFile& other) { return other.name == session.name; });
    if (session.name.empty() || session.name.find('/') != std::string::npos || session.name == "..")
      root.at("session").problem("a session is called " + quoted(session.name), "give it the name of its folder of HDF5 files");
    if (twice != file_.sessions.end())
      root.at("session").problem("session " + quoted(session.name) + " appears twice", "remove one of them");
    if (session.cids.empty())
      root.at("cids").problem("session " + quoted(session.name) + " has no cids",
                              "write cids: [0, 1, ...], the columns of /robs that the model predicts");
    std::vector<std::int64_t> cids = session.cids;
    std::ranges::sort(cids);
    if (const auto twin = std::ranges::adjacent_find(cids); twin != cids.end())
      file_.notices.push_back("session " + session.name + " names cid " + std::to_string(*twin) +
                              " twice: the unit is learned twice and counts twice in every mean; list it only once in cids");
    if (session.types.empty()) root.at("types").problem("types is empty", "name the HDF5 files of a session without .h5");
    if (!(session.train_share > 0 && session.train_share < 1))
      root.at("train_val_split")
          .problem("train_val_split is " + figure(session.train_share), "write the share for training, such as 0.8");
    if (!(session.source_rate > 0 && session.target_rate > 0))
      root.at("sampling").problem("sampling rates are not above 0", "write source_rate and target_rate in Hz");
    if (session.lags > session.filters.n_lags) {
      root.at("keys_lags")
          .at("stim")
          .problem("the stimulus has " + std::to_string(session.lags) + " lags, but filter valid_nlags looks back only " +
                       std::to_string(session.filters.n_lags) + " bins",
                   "raise datafilters' valid_nlags.n_lags, because otherwise a window would reach into the trial before");
    }
    const bool has_stim = std::any_of(session.transforms.begin(), session.transforms.end(),
                                      [](const Transform& transform) { return transform.expose_as == "stim"; });
    if (!has_stim)
      root.at("transforms")
          .problem("no transform is exposed as stim",
                   "add stim: {source: stim, ops: [pixelnorm: {}, unsqueeze: 1], expose_as: stim}");
  }

  // The problems without repeats, because a fault in the parent is found again in each session of the parent.
  [[nodiscard]] std::vector<Problem> each_once() const {
    std::vector<Problem> once;
    for (const Problem& problem : problems_) {
      const auto same = [&problem](const Problem& other) {
        return std::tie(other.what, other.where, other.next) == std::tie(problem.what, problem.where, problem.next);
      };
      if (std::none_of(once.begin(), once.end(), same)) once.push_back(problem);
    }
    return once;
  }

  void set_ratio(const Node& sampling, SessionFile& session) {
    const double ratio = session.source_rate / session.target_rate;
    if (ratio >= 1 && ratio <= 1e6 && std::floor(ratio) == ratio) {
      session.ratio = static_cast<std::int64_t>(ratio);
    } else if (!bad_rates_) {
      bad_rates_ = Message{
          "source_rate " + figure(session.source_rate) + " is not a whole multiple of target_rate " + figure(session.target_rate),
          sampling.place(), "choose a target_rate that divides the source_rate"};
    }
  }

  stdfs::path path_;
  std::vector<Problem> problems_;
  std::optional<Message> bad_rates_;
  DatasetFile file_;
};

}  // namespace

DatasetFile read_dataset_file(const stdfs::path& path, std::int64_t max_sessions) { return Reading(path).read(max_sessions); }

}  // namespace millrace::recipes::neural_response
