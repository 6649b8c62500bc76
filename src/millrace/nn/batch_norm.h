// Batch normalisation; the ranks of a run may share its statistics.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "millrace/core/agreement.h"

namespace millrace::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  // Weight of the newest batch in the running statistics: running = (1 - momentum) * running + momentum * batch.
  double momentum = 0.1;
};

// y = (x - mean) / sqrt(var + eps) * weight + bias for x (N, C, ...). Each channel has its own mean and var, taken over all
// other dimensions. In training, mean and var are those of the batch (variance without Bessel's correction); in evaluation they
// are the running statistics (with the correction), as in torch.nn.BatchNorm1d, 2d and 3d. Parameters and buffers have the same
// names as in torch. In one process the bits equal torch's. After Ioffe and Szegedy 2015 (arXiv:1502.03167).
class BatchNormImpl : public torch::nn::Cloneable<BatchNormImpl> {
 public:
  explicit BatchNormImpl(std::int64_t channels, BatchNormOptions options = {});
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  // From here on a training batch consists of the rows of all ranks: forward() and its backward pass are then collective, and
  // the running statistics are equal on all ranks. The ranks may have different numbers of rows, some even 0, but not all.
  // `agreement` must outlive the module's use. If `agreement` is null or has one process, the batch consists of this rank's
  // rows.
  void share(Agreement* agreement) noexcept { agreement_ = agreement; }

  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  at::Tensor forward_shared(const at::Tensor& x);
  std::int64_t channels_;
  BatchNormOptions options_;
  Agreement* agreement_ = nullptr;
};
TORCH_MODULE(BatchNorm);

// Calls share() for every BatchNorm in the module.
void share_batch_norms(torch::nn::Module& module, Agreement* agreement);

}  // namespace millrace::nn
