#include "recipes/neural_response/sessions/operations.h"

#include <algorithm>
#include <array>
#include <span>

#include "millrace/base/format.h"

namespace millrace::recipes::neural_response {
namespace {

using Names = std::vector<std::string_view>;

// The arguments of an operation or a filter. A single value in place of a map sets the argument that is read with `may_be_bare`.
struct Arguments {
  Node node;
  std::string what;  // name in messages, such as "operation diff"

  void only(const Names& known, const Names& ignored = {}) const {
    if (!node.is_object()) return;
    node.only("argument", known, ignored, " of " + what);
  }
  [[nodiscard]] Node at(const std::string& name, bool may_be_bare = false) const {
    return may_be_bare && !node.is_object() ? node : node.at(name);
  }
  void none() const {
    if (node.is_object()) {
      for (const std::string& key : node.keys())
        node.at(key).problem("unknown argument " + quoted(key) + " of " + what, what + " has no arguments");
    } else if (!node.is_empty()) {
      node.problem(what + " has no arguments", "write {} after it");
    }
  }
  // Adds a problem if the argument has another value than `value`, the only one of VisionCore's values that is supported.
  void must_be(const std::string& name, bool value) const {
    if (node.at(name).truth(value) != value)
      node.at(name).problem(what + " is not supported with " + name + ": " + (value ? "false" : "true"),
                            "write " + name + ": " + (value ? "true" : "false"));
  }
};

Operation diff_of(const Arguments& arguments) {
  arguments.only({"axis"});
  if (arguments.at("axis", true).whole(0) != 0) arguments.node.problem("diff is along axis 0, time", "write axis: 0");
  return op::Diff{};
}

Operation mul_of(const Arguments& arguments) {
  arguments.only({"factor"});
  return op::Mul{arguments.at("factor", true).number(1)};
}

Operation unsqueeze_of(const Arguments& arguments) {
  arguments.only({"axis"});
  return op::Unsqueeze{arguments.at("axis", true).whole(0)};
}

// Reads `smooth`. Its arguments are a map, or a list that contains a map, as in VisionCore's files. A single value sets
// `params`.
Operation smooth_of(const Arguments& arguments) {
  constexpr std::array<std::string_view, 2> kKnown = {"type", "params"};
  const bool is_list = arguments.node.is_list();
  Node type = arguments.node.at("type");
  Node params = is_list ? arguments.node.at("params") : arguments.at("params", true);
  if (!is_list) arguments.only({"type", "params"});
  for (const Node& map : arguments.node.items()) {
    map.only("argument", kKnown, {}, " of " + arguments.what);
    if (map.at("type").exists()) type = map.at("type");
    if (map.at("params").exists()) params = map.at("params");
  }
  if (const std::string word = type.text("gaussian"); word != "gaussian")
    type.problem("smooth is not supported with type " + quoted(word), "write type: gaussian");
  const double sigma = params.number(1);
  if (sigma > 1e6) arguments.node.problem("smooth has a deviation of " + figure(sigma) + " bins", "write a smaller one");
  return op::Smooth{sigma};
}

Operation cast_of(const Arguments& arguments) {
  constexpr std::array<std::string_view, 9> kTypes = {"float16", "float32", "float64", "int8", "int16",
                                                      "int32",   "int64",   "bool",    "uint8"};
  arguments.only({"dtype"});
  const std::string dtype = arguments.at("dtype", true).text("float32");
  if (std::find(kTypes.begin(), kTypes.end(), dtype) == kTypes.end())
    arguments.node.problem("cast knows no type " + quoted(dtype), suggestion_among(dtype, kTypes));
  return op::Cast{dtype};
}

Operation basis_of(const Arguments& arguments) {
  arguments.only({"num_delta_funcs", "num_cosine_funcs", "history_bins", "log_spacing", "peak_range_ms", "bin_size_ms",
                  "normalize", "causal", "orthogonalize", "batch_norm", "chomp"},
                 {"in_channels", "sampling_rate"});
  arguments.must_be("orthogonalize", false);
  arguments.must_be("batch_norm", false);
  if (arguments.at("chomp").whole(0) != 0) arguments.at("chomp").problem("temporal_basis drops no bins here", "remove chomp");
  op::TemporalBasis basis;
  basis.num_delta_funcs = arguments.at("num_delta_funcs").whole(basis.num_delta_funcs);
  basis.num_cosine_funcs = arguments.at("num_cosine_funcs").whole(basis.num_cosine_funcs);
  basis.history_bins = arguments.at("history_bins").whole(basis.history_bins, 1);
  basis.log_spacing = arguments.at("log_spacing").truth(basis.log_spacing);
  basis.peak_range_ms = arguments.at("peak_range_ms").numbers(basis.peak_range_ms);
  basis.bin_size_ms = arguments.at("bin_size_ms").number(basis.bin_size_ms);
  basis.normalize = arguments.at("normalize").truth(basis.normalize);
  basis.causal = arguments.at("causal").truth(basis.causal);
  const bool is_range = basis.peak_range_ms.size() == 2 && basis.peak_range_ms[0] >= 0 &&
                        (basis.peak_range_ms[0] < basis.peak_range_ms[1] || basis.num_cosine_funcs < 2);
  if (!is_range) {
    arguments.at("peak_range_ms").problem("peak_range_ms is no range", "write [lowest, highest] in ms");
    basis.peak_range_ms = {5, 100};
  }
  if (!(basis.bin_size_ms > 0)) arguments.at("bin_size_ms").problem("bin_size_ms is not above 0", "leave it out: it is 5");
  const std::int64_t functions = basis.num_delta_funcs + basis.num_cosine_funcs;
  if (functions < 1 || functions > 1000 || basis.history_bins > 100000)
    arguments.node.problem(
        "temporal_basis has " + std::to_string(functions) + " functions of " + std::to_string(basis.history_bins) + " bins",
        "write 1 to 1,000 functions of at most 100,000 bins");
  return basis;
}

Operation split_relu_of(const Arguments& arguments) {
  arguments.only({"split_dim", "trainable_gain"});
  if (arguments.at("split_dim").whole(1) != 1)
    arguments.at("split_dim").problem("splitrelu is supported only along axis 1", "write split_dim: 1");
  arguments.must_be("trainable_gain", false);
  return op::SplitRelu{};
}

Operation whitening_of(const Arguments& arguments) {
  arguments.only({"f_0", "n"});
  const op::FftWhitening whitening{arguments.at("f_0").number(0.4), arguments.at("n").number(4)};
  if (!(whitening.f_0 > 0))
    arguments.at("f_0").problem("f_0 is not above 0", "write a frequency in cycles per sample, such as 0.4");
  return whitening;
}

Operation cones_of(const Arguments& arguments) {
  arguments.only(
      {"sampling_rate", "alpha", "beta", "gamma", "tau_y_ms", "tau_z_ms", "n_y", "n_z", "filter_length", "learnable_params"},
      {"height", "width"});
  arguments.must_be("learnable_params", false);
  op::DaCones cones;
  cones.sampling_rate = arguments.at("sampling_rate").number(cones.sampling_rate);
  cones.alpha = arguments.at("alpha").number(cones.alpha);
  cones.beta = arguments.at("beta").number(cones.beta);
  cones.gamma = arguments.at("gamma").number(cones.gamma);
  cones.tau_y_ms = arguments.at("tau_y_ms").number(cones.tau_y_ms);
  cones.tau_z_ms = arguments.at("tau_z_ms").number(cones.tau_z_ms);
  cones.n_y = arguments.at("n_y").number(cones.n_y);
  cones.n_z = arguments.at("n_z").number(cones.n_z);
  cones.filter_length = arguments.at("filter_length").whole(cones.filter_length, 1);
  if (!(cones.sampling_rate > 0)) arguments.at("sampling_rate").problem("sampling_rate is not above 0", "write it in Hz");
  if (cones.filter_length > 100000) arguments.at("filter_length").problem("filter_length is above 100,000", "write fewer bins");
  return cones;
}

template <class Plain>
Operation plain_of(const Arguments& arguments) {
  arguments.none();
  return Plain{};
}

struct Maker {
  std::string_view name;
  Operation (*make)(const Arguments&);
};

constexpr std::array<Maker, 12> kMakers = {{{"pixelnorm", plain_of<op::PixelNorm>},
                                            {"unsqueeze", unsqueeze_of},
                                            {"diff", diff_of},
                                            {"mul", mul_of},
                                            {"maxnorm", plain_of<op::MaxNorm>},
                                            {"symlog", plain_of<op::SymLog>},
                                            {"temporal_basis", basis_of},
                                            {"splitrelu", split_relu_of},
                                            {"smooth", smooth_of},
                                            {"cast", cast_of},
                                            {"fftwhitening", whitening_of},
                                            {"dacones", cones_of}}};

// Calls take(name, arguments) for each entry of the list.
template <class Take>
void each_of_list(const Node& list, const Take& take) {
  if (list.is_empty()) return;
  if (!list.is_list()) return list.problem(list.path() + " is no list", "write a list: - NAME: {arguments}");
  for (const Node& item : list.items()) {
    const std::vector<std::string> names = item.keys();
    if (item.is_object() && names.size() == 1) {
      take(names[0], item.at(names[0]));
    } else if (!item.is_object() && !item.is_list()) {
      const std::string name = item.text("");
      take(name, item.at(name));
    } else {
      item.problem(list.path() + " has an entry that is not a single name with arguments", "write each as - NAME: {arguments}");
    }
  }
}

}  // namespace

std::vector<Operation> operations_of(const Node& list) {
  std::vector<Operation> operations;
  each_of_list(list, [&operations](const std::string& name, const Node& arguments) {
    const auto it = std::find_if(kMakers.begin(), kMakers.end(), [&name](const Maker& maker) { return maker.name == name; });
    if (it == kMakers.end()) {
      Names known;
      for (const Maker& maker : kMakers) known.push_back(maker.name);
      arguments.problem("unknown operation " + quoted(name), suggestion_among(name, known));
      return;
    }
    operations.push_back(it->make({arguments, "operation " + name}));
  });
  return operations;
}

void add_filters(const Node& list, Filters& filters) {
  constexpr std::array<std::string_view, 2> kFilters = {"valid_nlags", "missing_pct"};
  each_of_list(list, [&](const std::string& name, const Node& node) {
    const Arguments arguments{node, "filter " + name};
    if (name == "valid_nlags") {
      arguments.only({"n_lags"});
      filters.n_lags = std::max(filters.n_lags, arguments.at("n_lags", true).whole(1, 1));
    } else if (name == "missing_pct") {
      arguments.only({"threshold"});
      const double threshold = arguments.at("threshold", true).number(45);
      filters.missing_threshold = filters.has_missing_pct ? std::min(filters.missing_threshold, threshold) : threshold;
      filters.has_missing_pct = true;
    } else {
      node.problem("unknown filter " + quoted(name), suggestion_among(name, kFilters));
    }
  });
}

std::string why_not(const Operation& operation, const std::string& field) {
  const bool of_stim = field == "stim";
  if (const auto* unsqueeze = std::get_if<op::Unsqueeze>(&operation)) {
    if (!of_stim) return "unsqueeze is only for the stimulus";
    if (unsqueeze->axis > 1)
      return "unsqueeze of the stimulus makes the axis of channels: write 1, or 0 as in the original's files";
  }
  if (field != "behavior" && std::holds_alternative<op::TemporalBasis>(operation)) return "temporal_basis is only for behavior";
  if (field != "behavior" && std::holds_alternative<op::SplitRelu>(operation)) return "splitrelu is only for behavior";
  if (!of_stim && std::holds_alternative<op::FftWhitening>(operation)) return "fftwhitening is only for the stimulus";
  if (!of_stim && std::holds_alternative<op::DaCones>(operation)) return "dacones is only for the stimulus";
  return "";
}

}  // namespace millrace::recipes::neural_response
