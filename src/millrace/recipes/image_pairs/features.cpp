#include "millrace/recipes/image_pairs/features.h"

#include <ATen/ops/cat.h>

#include <map>

namespace millrace::recipes::image_pairs {

FeatureStore::FeatureStore(std::int64_t images, std::uint64_t budget)
    : kept_(static_cast<std::size_t>(images)), budget_(budget) {}

at::Tensor FeatureStore::of(const std::vector<std::int64_t>& ids, const at::Tensor& pixels, const Make& make) {
  std::map<std::int64_t, at::Tensor> of_batch;
  std::vector<at::Tensor> rows;
  rows.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(ids[i]);
    at::Tensor& kept = id < kept_.size() ? kept_[id] : of_batch[ids[i]];
    at::Tensor& here = kept.defined() ? kept : of_batch[ids[i]];
    if (!here.defined()) {
      here = make(pixels.narrow(0, static_cast<std::int64_t>(i), 1)).detach();
      ++made_;
      if (id < kept_.size() && bytes_ + here.nbytes() <= budget_) {
        kept = here;
        bytes_ += here.nbytes();
      }
    }
    rows.push_back(here);
  }
  return at::cat(rows, 0);
}

void FeatureStore::forget() {
  for (at::Tensor& kept : kept_) kept.reset();
  bytes_ = 0;
}

}  // namespace millrace::recipes::image_pairs
