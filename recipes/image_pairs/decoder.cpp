#include "recipes/image_pairs/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "millrace/memory/block.h"

namespace millrace::recipes::image_pairs {
namespace {

constexpr double kRmsNormEps = 1e-5;

// Selects one position of each row: turns (R, L, d) into (R, 1, d).
at::Tensor at_last(const at::Tensor& x, const at::Tensor& rows) {
  return rows.defined() ? x.flatten(0, 1).index_select(0, rows).unsqueeze(1) : x.narrow(1, x.size(1) - 1, 1);
}

// Returns {x, at_last(x)}. In the backward pass, the gradient of at_last(x) is added in place to that of x, so that x gets a
// single gradient.
struct WithLast : torch::autograd::Function<WithLast> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                                                const std::optional<at::Tensor>& rows) {
    context->save_for_backward({rows.value_or(at::Tensor())});
    return {x.detach(), at_last(x, rows.value_or(at::Tensor())).clone(at::MemoryFormat::Contiguous)};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor rows = context->get_saved_variables()[0];
    const bool overwrites = !torch::autograd::get_current_graph_task_keep_graph();
    const at::Tensor all = overwrites ? gradients[0].contiguous() : gradients[0].clone(at::MemoryFormat::Contiguous);
    if (rows.defined()) {
      all.flatten(0, 1).index_add_(0, rows, gradients[1].flatten(0, 1));
    } else {
      at_last(all, rows).add_(gradients[1]);
    }
    return {all, {}};
  }
};

std::pair<at::Tensor, at::Tensor> with_last(const at::Tensor& x, const at::Tensor& rows) {
  const auto both = WithLast::apply(x, rows.defined() ? std::optional<at::Tensor>(rows) : std::nullopt);
  return {both[0], both[1]};
}

}  // namespace

struct DecoderBlock : torch::nn::Module {
  DecoderBlock(const RecipeConfig& config, const Making& how) {
    const std::int64_t width = config.decoder_width, hidden = config.decoder_hidden;
    const auto group = [&](const char* name) { return register_module(name, std::make_shared<torch::nn::Module>()); };
    const auto add = [&](torch::nn::Module& parent, const char* name, std::int64_t in, std::int64_t out,
                         const at::Tensor& memory = {}) {
      const bool adapted = std::ranges::find(config.lora_targets, name) != config.lora_targets.end();
      const Projection::Shape shape{.in = in, .out = out, .rank = adapted ? config.lora_r : 0};
      return parent.register_module(name, std::make_shared<Projection>(shape, how, memory));
    };
    const auto attention = group("self_attn");
    const auto qkv = side_by_side({width, width, width}, width, how), gated = side_by_side({hidden, hidden}, width, how);
    q = add(*attention, "q_proj", width, width, qkv[0]);
    k = add(*attention, "k_proj", width, width, qkv[1]);
    v = add(*attention, "v_proj", width, width, qkv[2]);
    o = add(*attention, "o_proj", width, width);
    const auto mlp = group("mlp");
    gate = add(*mlp, "gate_proj", width, hidden, gated[0]);
    up = add(*mlp, "up_proj", width, hidden, gated[1]);
    down = add(*mlp, "down_proj", hidden, width);
    const std::vector<std::int64_t> norm{width};
    input_norm = register_module("input_layernorm", std::make_shared<Weight>(norm, how));
    middle_norm = register_module("post_attention_layernorm", std::make_shared<Weight>(norm, how));
  }
  using torch::nn::Module::to;
  void to(at::Device device, bool non_blocking) override {
    torch::nn::Module::to(device, non_blocking);
    Projection::put_side_by_side({q.get(), k.get(), v.get()});
    Projection::put_side_by_side({gate.get(), up.get()});
  }

  std::shared_ptr<Projection> q, k, v, o, gate, up, down;
  std::shared_ptr<Weight> input_norm, middle_norm;
};

LanguageModel::LanguageModel(const RecipeConfig& config, const Projecting& projecting, const Making& how)
    : heads_(config.decoder_heads),
      head_width_(config.decoder_width / config.decoder_heads),
      rope_base_(config.rope_base),
      projecting_(projecting),
      answers_(answers_of(config)) {
  const std::vector<std::int64_t> table{config.vocab_size, config.decoder_width}, norm{config.decoder_width};
  const auto model = register_module("model", std::make_shared<torch::nn::Module>());
  embed_tokens_ = model->register_module("embed_tokens", std::make_shared<Weight>(table, how));
  const auto layers = model->register_module("layers", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < config.decoder_layers; ++i)
    blocks_.push_back(layers->register_module(std::to_string(i), std::make_shared<DecoderBlock>(config, how)));
  norm_ = model->register_module("norm", std::make_shared<Weight>(norm, how));
  lm_head_ = register_module("lm_head", std::make_shared<Weight>(table, how));
}

LanguageModel::~LanguageModel() = default;

const nn::Rotary& LanguageModel::rotary(std::int64_t length, at::Device device) {
  if (!rotary_.cos.defined() || rotary_.cos.size(0) != length || rotary_.cos.device() != device)
    rotary_ = nn::rotary_table(length, head_width_, rope_base_, device);
  return rotary_;
}

at::Tensor LanguageModel::embed(const at::Tensor& images, const at::Tensor& which, const Prompts& prompts) const {
  const std::int64_t rows = which.size(0), patches = images.size(1);
  std::vector<at::Tensor> pieces;
  const auto text = [&](std::int64_t from, std::int64_t to) {
    if (to <= from) return;
    const at::Tensor tokens = prompts.tokens.narrow(1, from, to - from);
    pieces.push_back(at::embedding(embed_tokens_->weight, tokens).to(at::kFloat).expand({rows, -1, -1}));
  };
  const at::Tensor values = images.to(at::kFloat);
  text(0, prompts.first);
  pieces.push_back(values.index_select(0, which.select(1, 0)));
  text(prompts.first + patches, prompts.second);
  pieces.push_back(values.index_select(0, which.select(1, 1)));
  text(prompts.second + patches, prompts.tokens.size(1));
  return at::cat(pieces, 1);
}

LanguageModel::Last LanguageModel::last_of(const Prompts& prompts, std::int64_t rows) const {
  const std::int64_t length = prompts.tokens.size(1);
  const auto options = prompts.tokens.options();
  if (!prompts.lengths.defined()) return {.positions = at::full({rows}, length - 1, options)};
  const at::Tensor positions = prompts.lengths - 1;
  return {.positions = positions, .rows = at::arange(rows, options) * length + positions};
}

LanguageModel::Stream LanguageModel::finish(const DecoderBlock& block, const at::Tensor& mixed, at::Tensor x,
                                            const at::Tensor& next_norm) const {
  const nn::Fused& fused = projecting_.fused;
  const auto multiply = [&](const at::Tensor& input, std::initializer_list<const Projection*> by) {
    return project(input, by, projecting_, is_training());
  };
  const auto middle =
      nn::add_rms_norm(multiply(mixed, {block.o.get()}), x, norm_weight(block.middle_norm->weight), kRmsNormEps, fused);
  x.reset();                 // frees x: the sum contains x, and no gradient needs x itself
  const at::Tensor branch =  // one expression, so that intermediate results are freed before the sum allocates memory
      project_gated(multiply(middle.second, {block.gate.get(), block.up.get()}), *block.down, projecting_, is_training());
  auto out = nn::add_rms_norm(branch, middle.first, norm_weight(next_norm), kRmsNormEps, fused);
  return {std::move(out.first), std::move(out.second)};
}

LanguageModel::Stream LanguageModel::run(const DecoderBlock& block, const at::Tensor& next_norm, Stream in) const {
  const at::Tensor qkv = project(in.y, {block.q.get(), block.k.get(), block.v.get()}, projecting_, is_training());
  return finish(block, nn::rotary_attention(qkv, rotary_, heads_, projecting_.fused), std::move(in.x), next_norm);
}

LanguageModel::Stream LanguageModel::run_at(const DecoderBlock& block, const at::Tensor& next_norm, Stream in,
                                            const Last& last) const {
  // The position is selected before all other operations, so the backward pass spreads its gradient over all positions last.
  at::Tensor x = at_last(in.x, last.rows).contiguous();
  in.x.reset();  // frees the other positions
  const auto [all, y] = with_last(in.y, last.rows);
  const at::Tensor kv = project(all, {block.k.get(), block.v.get()}, projecting_, is_training());
  const at::Tensor q = project(y, {block.q.get()}, projecting_, is_training());
  const at::Tensor mixed = nn::rotary_attention_at(q, kv, last.positions, rotary_, heads_, projecting_.fused);
  return finish(block, mixed, std::move(x), next_norm);
}

at::Tensor LanguageModel::forward(at::Tensor images, const at::Tensor& which, const Prompts& prompts) {
  Stream stream;
  stream.x = embed(images, which, prompts);
  images.reset();  // frees the images, because the residual stream holds a copy of each row's images
  stream.y = nn::rms_norm(stream.x, norm_weight(blocks_.front()->input_norm->weight), kRmsNormEps, projecting_.fused);
  (void)rotary(stream.x.size(1), stream.x.device());
  const Last last = last_of(prompts, which.size(0));
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const DecoderBlock& block = *blocks_[i];
    const bool is_last = i + 1 == blocks_.size();
    const at::Tensor next_norm = is_last ? norm_->weight : blocks_[i + 1]->input_norm->weight;
    const bool one_position = is_last && projecting_.fused.on(kLastPosition);
    if (one_position) nn::count_taken<kLastPosition>();
    const auto advance = [this, next_norm, one_position, last, &block](Stream in) {
      return one_position ? run_at(block, next_norm, std::move(in), last) : run(block, next_norm, std::move(in));
    };
    const std::string name = "decoder.layers." + std::to_string(i);
    if (!memory::wants_block(name)) {  // without memory::block(), values that are no longer needed are freed during the pass
      stream = advance(std::move(stream));
      continue;
    }
    const auto out = memory::block(name, block, [advance, stream] {
      const Stream after = advance(stream);
      return std::pair(after.x, after.y);
    });
    stream = {out.first, out.second};
  }
  const at::Tensor hidden = projecting_.fused.on(kLastPosition) ? stream.y : at_last(stream.y, last.rows);
  if (!answer_rows_.defined() || answer_rows_.device() != hidden.device())
    answer_rows_ = at::tensor(answers_, at::kLong).to(hidden.device());  // host: copied to the device once, not in each step
  const at::Tensor rows = lm_head_->weight.index_select(0, answer_rows_).to(at::kFloat);
  // the logits of three words, computed as sums because autocast would round a matrix product
  return (hidden.to(at::kFloat) * rows).sum(-1);
}

}  // namespace millrace::recipes::image_pairs
