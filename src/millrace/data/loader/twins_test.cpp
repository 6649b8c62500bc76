#include "millrace/data/loader/twins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace millrace::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Labels whose classes are given.
class Labels final : public Source {
 public:
  Labels(std::string fingerprint, std::vector<std::string> classes)
      : fingerprint_(std::move(fingerprint)), classes_(std::move(classes)) {}
  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return 4; }
  void read(std::span<const std::int64_t>, Rows, const ReadRandom&) const override {}
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::vector<std::string> value_names(std::string_view field) const override {
    return field == "label" ? classes_ : std::vector<std::string>();
  }

 private:
  std::vector<Field> fields_{{"x", DType::f32, {}}, {"label", DType::i64, {}}};
  std::string fingerprint_;
  std::vector<std::string> classes_;
};

std::vector<std::string> notices(std::vector<std::string> learned, std::vector<std::string> judged) {
  const std::vector<Dataset> training = {{"", std::make_shared<Labels>("training", std::move(learned))}};
  const std::vector<Dataset> validation = {{"", std::make_shared<Labels>("validation", std::move(judged))}};
  return notices_of_twins(training, validation);
}

TEST(Twins, numbers_that_mean_other_classes_in_the_validation_are_named) {
  EXPECT_THAT(notices({"cat", "dog", "owl"}, {"cat", "owl"}),
              ElementsAre(AllOf(HasSubstr("field \"label\""), HasSubstr("1 means \"owl\" there and \"dog\" in the training"))));
  EXPECT_THAT(notices({"cat", "dog", "owl"}, {"cat", "dog", "owl"}), IsEmpty());
  EXPECT_THAT(notices({"cat", "dog", "owl"}, {"cat", "dog"}), IsEmpty()) << "the numbers that there are mean the same";
  EXPECT_THAT(notices({}, {"cat", "dog"}), IsEmpty());
}

TEST(Twins, a_source_that_is_both_is_named) {
  const std::vector<Dataset> one = {{"", std::make_shared<Labels>("the same", std::vector<std::string>())}};
  EXPECT_THAT(notices_of_twins(one, one), ElementsAre(HasSubstr("has the 4 samples of the training")));
}

}  // namespace
}  // namespace millrace::data
