#include "recipes/language_model/pictures.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logsumexp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/base/format.h"
#include "millrace/core/host_values.h"
#include "millrace/picture/draw.h"

namespace millrace::recipes::language_model {

void TokenLosses::add(const at::Tensor& logits, const at::Tensor& targets, std::int64_t pad) {
  classes_ = logits.size(2);
  const std::int64_t row = logits.size(1) * classes_;
  const bool begins = losses_.empty();
  const std::int64_t room = std::max<std::int64_t>((kMost - seen_) / std::max<std::int64_t>(row, 1), begins ? 1 : 0);
  const std::int64_t rows = std::min(logits.size(0), room);
  if (rows == 0 || (!begins && losses_.front().size(1) != logits.size(1))) return;
  seen_ += rows * row;
  // done row by row, because with a large vocabulary even the logits of one row take much memory
  for (std::int64_t i = 0; i < rows; ++i) {
    const at::Tensor wide = logits[i].to(at::kFloat);
    const at::Tensor target = targets[i].unsqueeze(1);
    const at::Tensor loss = at::logsumexp(wide, 1) - wide.gather(1, target).squeeze(1);
    losses_.push_back(loss.masked_fill(target.squeeze(1).eq(pad), std::numeric_limits<double>::quiet_NaN()).unsqueeze(0));
  }
}

at::Tensor TokenLosses::all() const { return at::cat(losses_).to(at::kCPU); }

Picture draw_context(const TokenLosses& losses) {
  const at::Tensor mean = losses.all().nanmean(0);
  picture::Curves curves{.name = "loss_by_place",
                         .title = "Loss by position in the sequence",
                         .caption = "If the curve still falls at its end, a longer context would help.",
                         .x = {.label = "tokens before"},
                         .y = {.label = "loss", .unit = "nats a token"},
                         .series = {}};
  std::vector<double> y = host_values<double>(mean);
  const double chance = std::log(static_cast<double>(losses.classes()));
  curves.series.push_back({.name = "guessing", .x = {}, .y = std::vector<double>(y.size(), chance)});
  curves.series.push_back({.name = "the model", .x = {}, .y = std::move(y)});
  return picture::curves(curves);
}

Picture draw_losses(const TokenLosses& losses) {
  const at::Tensor all = losses.all();
  const at::Tensor known = all.masked_select(all.isfinite());
  return picture::histograms(
      {.name = "token_losses",
       .title = "Loss of single tokens",
       .caption = with_commas(known.numel()) +
                  " tokens. Near 0: the token was expected. Far right: the model was sure of another token.",
       .x = {.label = "loss", .unit = "nats"},
       .log_counts = true,
       .bins = 60,
       .series = {{.name = "tokens", .values = host_values<float>(known)}}});
}

}  // namespace millrace::recipes::language_model
