#include "recipes/image_pairs/features.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <map>
#include <span>

namespace millrace::recipes::image_pairs {

FeatureStore::FeatureStore(std::int64_t images, std::uint64_t budget, std::int64_t together)
    : kept_(static_cast<std::size_t>(images)), budget_(budget), together_(static_cast<std::size_t>(together)) {}

at::Tensor FeatureStore::of(const std::vector<std::int64_t>& ids, const at::Tensor& pixels, const Make& make) {
  std::map<std::int64_t, at::Tensor> of_batch;
  std::vector<std::size_t> missing;  // the first row of each image whose features are not kept
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto [known, is_new] = of_batch.try_emplace(ids[i], kept(ids[i]));
    if (is_new && !known->second.defined()) missing.push_back(i);
  }
  for (std::size_t begin = 0; begin < missing.size(); begin += together_) {
    const auto here = std::span<const std::size_t>(missing).subspan(begin, std::min(together_, missing.size() - begin));
    std::vector<at::Tensor> images;
    for (std::size_t i = 0; i < together_; ++i)
      images.push_back(pixels.narrow(0, static_cast<std::int64_t>(here[std::min(i, here.size() - 1)]), 1));
    const at::Tensor made = make(at::cat(images, 0)).detach();
    for (std::size_t i = 0; i < here.size(); ++i) {
      const std::int64_t image = ids[here[i]];
      of_batch[image] = keep(image, made.narrow(0, static_cast<std::int64_t>(i), 1));
    }
  }
  std::vector<at::Tensor> rows;
  rows.reserve(ids.size());
  for (const std::int64_t image : ids) rows.push_back(of_batch.at(image));
  return at::cat(rows, 0);
}

at::Tensor FeatureStore::kept(std::int64_t image) const {
  const auto number = static_cast<std::size_t>(image);
  return number < kept_.size() ? kept_[number] : at::Tensor();
}

at::Tensor FeatureStore::keep(std::int64_t image, const at::Tensor& made) {
  ++made_;
  const auto number = static_cast<std::size_t>(image);
  if (number >= kept_.size() || bytes_ + made.nbytes() > budget_) return made;
  bytes_ += made.nbytes();
  // a copy, because a view would keep the output of the tower's whole call in memory
  kept_[number] = made.clone(at::MemoryFormat::Contiguous);
  return kept_[number];
}

void FeatureStore::forget() {
  for (at::Tensor& one : kept_) one.reset();
  bytes_ = 0;
}

}  // namespace millrace::recipes::image_pairs
