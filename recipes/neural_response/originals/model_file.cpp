#include "recipes/neural_response/entry_parts.h"

#include <algorithm>
#include <string>

#include "millrace/base/format.h"

namespace millrace::recipes::neural_response {
namespace {

// A mapping in the file. At the end, keys that were neither read nor ignored are refused.
class Section {
 public:
  Section(const Json& tree, std::string path, std::vector<Problem>& problems)
      : tree_(tree.is_object() ? tree : Json::object()), path_(std::move(path)), problems_(problems) {
    if (!tree.is_object() && !tree.is_null()) refuse("", text_of(tree) + " is not a mapping", "write it as key: value");
  }

  // The value of a key; null if the key is missing.
  const Json& take(const std::string& key) {
    static const Json none;
    known_.push_back(key);
    const auto found = tree_.find(key);
    return found == tree_.end() ? none : *found;
  }
  void into(Json& values, const std::string& key, const std::string& path) {
    if (const Json& value = take(key); !value.is_null()) values[path] = value;
  }
  Section inside(const std::string& key) { return {take(key), at(key), problems_}; }
  // Reads a word, which must be one of `words`. If the key is missing, returns the first of `words`.
  std::string word(const std::string& key, const std::vector<std::string>& words, const std::string& next) {
    const Json& value = take(key);
    const std::string text = value.is_null() ? words.front() : text_of(value);
    if (std::ranges::find(words, text) == words.end()) refuse(key, key + " " + text + " is not supported", next);
    return text;
  }
  // Reads a number, or a list whose numbers are all equal.
  void one_of_all(Json& values, const std::string& key, const std::string& name) {
    const Json& value = take(key);
    if (value.is_null()) return;
    values[name] = value.is_array() && !value.empty() ? value.front() : value;
    if (!value.is_array()) return;
    for (const Json& each : value) {
      if (each != value.front()) return refuse(key, key + " differs between the axes", "use the same number for all three");
    }
  }
  void ignore(const std::vector<std::string>& keys) { known_.insert(known_.end(), keys.begin(), keys.end()); }
  void finish() {
    for (const auto& item : tree_.items()) {
      if (std::ranges::find(known_, item.key()) != known_.end()) continue;
      const std::string near = nearest(item.key(), known_.data(), known_.data() + known_.size());
      refuse(item.key(), "unknown key " + quoted(item.key()), near.empty() ? "remove it" : "did you mean " + near + "?");
    }
  }
  void refuse(const std::string& key, const std::string& what, const std::string& next) {
    problems_.push_back({(path_.empty() ? "" : path_ + ": ") + what, at(key), next});
  }
  [[nodiscard]] bool has(const std::string& key) const { return tree_.contains(key) && !tree_[key].is_null(); }

  static std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

 private:
  [[nodiscard]] std::string at(const std::string& key) const {
    return path_.empty() || key.empty() ? path_ + key : path_ + "." + key;
  }
  Json tree_;
  std::string path_;
  std::vector<Problem>& problems_;
  std::vector<std::string> known_;
};

const std::string kOther = "this recipe has the residual network with RMS norm, SiLU and blurred soft pooling; see its README";

void read_adapter(Section part, Json& values) {
  values["recipe.adapter.type"] = part.word("type", {"adapter", "none"}, kOther);
  Section own = part.inside("params");
  own.into(values, "grid_size", "recipe.adapter.grid_size");
  own.into(values, "init_sigma", "recipe.adapter.init_sigma");
  own.word("transform", {"scale"}, "set it to scale, the only transform that Millrace has");
  own.finish();
  part.finish();
}

void read_frontend(Section part, Json& values) {
  values["recipe.frontend.type"] = part.word("type", {"learnable_temporal", "none"}, kOther);
  Section own = part.inside("params");
  own.into(values, "kernel_size", "recipe.frontend.kernel_size");
  own.into(values, "num_channels", "recipe.frontend.num_channels");
  own.word("init_type", {"gaussian_derivatives"}, "set it to gaussian_derivatives, the only initial values that Millrace has");
  for (const char* off : {"aa_signal", "bias", "split_MP", "use_weight_norm", "keep_unit_norm"})
    own.word(off, {"false", "False"}, "set it to false");
  own.word("causal", {"true", "True"}, "set it to true");
  own.finish();
  part.finish();
}

// Returns the settings of a stage. `channels` is the stage's entry in the list of channels, which the file has beside the list
// of blocks.
Json stage_of(Section block, const Json& channels) {
  Json stage = {{"channels", channels}};
  Section conv = block.inside("conv_params");
  conv.word("type", {"standard"}, kOther);
  conv.into(stage, "kernel_size", "kernel_size");
  if (const Json& padding = conv.take("padding"); !padding.is_null())
    stage["padding"] = padding.is_array() ? padding : Json{padding, padding, padding};
  conv.one_of_all(stage, "stride", "stride");
  conv.one_of_all(stage, "dilation", "dilation");
  for (const char* off : {"aa_signal", "use_weight_norm", "keep_unit_norm"}) conv.word(off, {"false", "False"}, kOther);
  conv.finish();
  block.word("norm_type", {"rms"}, kOther);
  Section norm = block.inside("norm_params");
  norm.word("affine", {"false", "False"}, "the norm here has no parameters");
  norm.finish();
  block.word("act_type", {"silu"}, kOther);
  block.into(stage, "dropout", "dropout");
  if (block.has("pool_params")) {
    Section pool = block.inside("pool_params");
    pool.word("type", {"aablur"}, kOther);
    pool.word("use_soft", {"true", "True"}, "set it to true");
    stage["pool_stride"] = 1;
    pool.one_of_all(stage, "stride", "pool_stride");
    pool.into(stage, "r", "squeeze");
    pool.finish();
  } else {
    block.ignore({"pool_params"});
    stage["pool_stride"] = 0;
  }
  block.finish();
  return stage;
}

void read_convnet(Section part, Json& values, std::vector<Problem>& problems) {
  values["recipe.convnet.type"] = part.word("type", {"resnet", "none"}, kOther);
  Section own = part.inside("params");
  own.into(values, "final_activation", "recipe.convnet.final_activation");
  own.word("dim", {"3"}, "the core is three-dimensional");
  const std::string recompute = own.word("checkpointing", {"false", "true", "False", "True"}, "set it to true or false");
  if (recompute == "true" || recompute == "True") values["memory.recompute"] = Json{"all"};
  if (own.has("stem_config")) own.refuse("stem_config", "Millrace has no stem", kOther);
  own.ignore({"stem_config"});
  const Json& channels = own.take("channels");
  const Json& blocks = own.take("block_configs");
  if (channels.is_array() && blocks.is_array() && channels.size() == blocks.size()) {
    Json stages = Json::array();
    for (std::size_t i = 0; i < blocks.size(); ++i)
      stages.push_back(stage_of({blocks[i], "convnet.params.block_configs", problems}, channels[i]));
    values["recipe.convnet.stages"] = std::move(stages);
  } else if (!channels.is_null() || !blocks.is_null()) {
    own.refuse("block_configs", "channels and block_configs are not lists of the same length",
               "give each block its number of channels");
  }
  own.finish();
  part.finish();
}

void read_modulator(Section part, Json& values) {
  values["recipe.modulator.type"] = part.word("type", {"none", "convgru", "pc", "film", "concat", "stn"}, kOther);
  Section own = part.inside("params");
  own.ignore({"behavior_dim", "feature_dim"});  // ignored, because these sizes follow from the data and the core
  for (const char* key : {"hidden_dim", "beh_emb_dim", "kernel_size"})
    own.into(values, key, std::string("recipe.modulator.") + key);
  own.word("concat_error", {"true", "True"},
           "set it to true, because in Millrace the readouts always get the error together with the frame");
  for (const char* off : {"use_layer_norm", "learnable_h0", "use_depthwise", "use_grouped"})
    own.word(off, {"false", "False"}, "set it to false");
  Section encoder = own.inside("encoder_params");
  encoder.word("type", {"mlp"}, "set it to mlp, the only encoder that Millrace has");
  const std::string activation = encoder.word("activation", {"gelu", "silu"}, "take gelu or silu");
  if (activation == "gelu" || activation == "silu") values["recipe.modulator.encoder_params.activation"] = activation;
  encoder.word("bias", {"true", "True"}, "set it to true, because the layers of Millrace's encoder have biases");
  for (const char* key : {"dims", "residual", "dropout", "last_layer_activation"})
    encoder.into(values, key, std::string("recipe.modulator.encoder_params.") + key);
  encoder.finish();
  own.finish();
  part.finish();
}

void read_readout(Section part, Json& values) {
  values["recipe.readout.type"] = part.word("type", {"gaussian", "linear"}, kOther);
  Section own = part.inside("params");
  own.ignore({"n_units"});  // ignored, because the number follows from the sessions
  for (const char* key : {"bias", "initial_std", "initial_mean_scale"})
    own.into(values, key, std::string("recipe.readout.") + key);
  own.finish();
  part.finish();
}

Json penalty_of(Section rule) {
  Json record = Json::object();
  for (const char* key : {"name", "type", "lambda", "apply_to"}) rule.into(record, key, key);
  if (rule.has("schedule")) {
    Section schedule = rule.inside("schedule");
    schedule.into(record, "kind", "schedule");
    for (const char* key : {"start_epoch", "end_epoch", "start_lambda"}) schedule.into(record, key, key);
    schedule.finish();
  }
  rule.ignore({"schedule"});
  rule.finish();
  return record;
}

}  // namespace

Json keys_of_model_file(const Json& tree, std::vector<Problem>& problems) {
  Json values = Json::object();
  Section file(tree, "", problems);
  file.word("model_type", {"v1multi"}, "Millrace has only the model v1multi, with one core and many sessions");
  file.ignore({"sampling_rate"});  // ignored, because the dataset file has the rate
  file.word("initial_input_channels", {"1"}, "a frame has one channel");
  read_adapter(file.inside("adapter"), values);
  read_frontend(file.inside("frontend"), values);
  read_convnet(file.inside("convnet"), values, problems);
  read_modulator(file.inside("modulator"), values);
  Section recurrent = file.inside("recurrent");
  recurrent.word("type", {"none"}, "in Millrace the recurrent network is a part of the modulator: modulator type convgru");
  recurrent.ignore({"params"});
  recurrent.finish();
  read_readout(file.inside("readout"), values);
  file.into(values, "output_activation", "recipe.output_activation");
  file.into(values, "loss_type", "recipe.loss_type");
  file.into(values, "lambda_pred", "recipe.lambda_pred");
  if (const Json& rules = file.take("regularization"); rules.is_array()) {
    values["recipe.regularization"] = Json::array();
    for (const Json& rule : rules) values["recipe.regularization"].push_back(penalty_of({rule, "regularization", problems}));
  } else if (!rules.is_null()) {
    file.refuse("regularization", "regularization is not a list", "write a list of rules; [] means no rules");
  }
  file.finish();
  return values;
}

}  // namespace millrace::recipes::neural_response
