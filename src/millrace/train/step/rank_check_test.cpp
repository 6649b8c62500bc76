#include "millrace/train/step/rank_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "millrace/base/error.h"

namespace millrace {
namespace {

using testing::HasSubstr;

// Rank 0 of two. Rank 1 gives the answers that the test sets; if the test sets no answer, rank 1 answers the same as rank 0.
class SeatOfTwo final : public Agreement {
 public:
  explicit SeatOfTwo(Json other = {}) : other_(std::move(other)) {}
  [[nodiscard]] Ranks ranks() const override { return {.rank = 0, .local_rank = 0, .world_size = 2, .local_world_size = 2}; }
  [[nodiscard]] std::vector<Json> gather(Json mine) override {
    said = mine;
    return {mine, other_.is_null() ? mine : other_};
  }
  void sum(std::vector<at::Tensor>&) override {}
  Json said;

 private:
  Json other_;
};

// The error that rank 0 gets if rank 1 has this data.
std::string refusal_of(const Json& training, const Json& validation) {
  SeatOfTwo one;
  check_same_data(one, training, validation);
  SeatOfTwo zero(one.said);
  try {
    check_same_data(zero, Json{{"files", 3}}, Json{{"files", 1}});
  } catch (const DistributedError& error) {
    return error.what();
  }
  return "";
}

TEST(RankCheck, DataOfARankThatDiffersIsNamedWithItsSplit) {
  EXPECT_EQ(refusal_of(Json{{"files", 3}}, Json{{"files", 1}}), "");
  EXPECT_THAT(refusal_of(Json{{"files", 4}}, Json{{"files", 1}}), HasSubstr("the training data of rank 1 on "));
  EXPECT_THAT(refusal_of(Json{{"files", 3}}, Json{{"files", 2}}), HasSubstr("the validation data of rank 1 on "));
  EXPECT_THAT(refusal_of(Json{{"files", 3}}, Json()), HasSubstr("the validation data of rank 1 on ")) << "it has none";
}

}  // namespace
}  // namespace millrace
