// An Agreement that records how long this rank waits for the other ranks.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "millrace/core/agreement.h"
#include "millrace/telemetry/spans.h"

namespace millrace {

// Forwards each call to another agreement. The time of a call counts for the account `reduction`; in start-up, trials and
// validations the time counts for the account of that phase. Made in the loop's thread. Both arguments of the constructor must
// outlive this object.
class TimedAgreement final : public Agreement {
 public:
  TimedAgreement(Agreement& inner, telemetry::Timeline& timeline) : inner_(inner), timeline_(timeline) {}
  [[nodiscard]] Ranks ranks() const override { return inner_.ranks(); }
  [[nodiscard]] std::vector<Json> gather(Json mine) override;
  using Agreement::sum;
  void sum(std::vector<at::Tensor>& values) override;
  void share(std::vector<at::Tensor>& values, const std::vector<int>& owners) override;
  [[nodiscard]] std::unique_ptr<GradientSums> gradient_sums(const std::vector<at::Tensor>& parameters,
                                                            const GradientSumsOptions& options) override;
  [[nodiscard]] Chosen<std::string> use_device(at::Device device, const std::string& wish) override;
  void leave() override { inner_.leave(); }
  [[nodiscard]] bool has_cut_sums() const noexcept override { return inner_.has_cut_sums(); }
  [[nodiscard]] std::int64_t exchanges() const noexcept override { return inner_.exchanges(); }

 private:
  template <class Call>
  auto on_account(Call call);

  Agreement& inner_;
  telemetry::Timeline& timeline_;
  std::thread::id loop_ = std::this_thread::get_id();
};

}  // namespace millrace
