#include "millrace/config/schema.h"

#include <gmock/gmock.h>

#include "millrace/config/detail/test_config.h"
#include "millrace/config/schema_of.h"

namespace millrace::config {
namespace test {

const Schema& settings_schema() {
  static const Schema schema = schema_of<Settings>();
  return schema;
}

std::vector<Alias> settings_aliases() {
  return {{.name = "lr", .path = "optim.learning_rate", .convert = {}, .note = "as in the original"},
          {.name = "device", .path = "model.start_from", .convert = {}, .note = ""},
          {.name = "optim", .path = "optim.name", .convert = {}, .note = "a name that is a section too"},
          {.name = "num_workers", .path = "data.workers", .convert = {}, .note = ""},
          {.name = "use_cpu",
           .path = "optim.fused",
           .convert = [](const Json& value) { return value.get<bool>() ? Json(false) : Json(nullptr); },
           .note = ""},
          {.name = "rate",
           .path = "model.dropout",
           .convert = [](const Json& value) { return Json(1.0 - value.get<double>()); },
           .note = "share kept | inverted"}};
}

std::string text_of_problems(const Layers& layers) {
  try {
    static_cast<void>(layers.resolve());
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace test

namespace {

using test::Block;
using test::ModelSection;
using test::Settings;
using ::testing::ElementsAre;

enum class Spelling : std::uint8_t { new_, old, rare = 100 };
struct Base {
  int x = 0;
};
struct Derived : Base {
  int y = 0;
};
struct WithArray {
  int values[3] = {};
  static consteval auto fields() { return std::tuple{field<&WithArray::values>("")}; }
};
struct Forgetful {
  int a = 0;
  std::optional<std::string> b;
  std::variant<int, bool> c;
  Auto<double> d;
  static consteval auto fields() { return std::tuple{field<&Forgetful::a>("")}; }
};

TEST(Reflect, NamesMembersAndEnumerators) {
  EXPECT_EQ(detail::member_name<&ModelSection::start_from>(), "start_from");
  EXPECT_EQ(detail::kEnumNames<Spelling>[0], "new");
  EXPECT_EQ(detail::kEnumNames<Spelling>[1], "old");
  EXPECT_EQ(detail::kEnumNames<Spelling>[2], "");
  EXPECT_EQ(detail::kEnumNames<Spelling>[100], "rare");
}

TEST(Reflect, SeesWhatTheCompilerRefuses) {
  static_assert(detail::count_members<Forgetful>() == 4);
  static_assert(detail::count_members<ModelSection>() == 8);
  static_assert(detail::count_members<WithArray>() == 3);
  static_assert(detail::has_c_array(WithArray::fields()));
  static_assert(!detail::has_c_array(Forgetful::fields()));
  static_assert(detail::HasBase<Derived>);
  static_assert(!detail::HasBase<ModelSection>);
  static_assert(detail::names_are_distinct(ModelSection::fields()));
  static_assert(!detail::names_are_distinct(std::tuple{field<&Base::x>(""), field<&Base::x>("")}));
}

TEST(SchemaOf, HasALeafPerMemberInOrder) {
  const Schema& schema = test::settings_schema();
  ASSERT_EQ(schema.leaves.size(), 18U);
  EXPECT_EQ(schema.leaves.front().path, "data.sources");
  EXPECT_TRUE(schema.leaves.front().required);
  EXPECT_EQ(schema.groups.at("optim"), "Optimiser.");
  EXPECT_EQ(schema.find("optim.unknown"), nullptr);
  const Leaf& rate = *schema.find("optim.learning_rate");
  EXPECT_EQ(rate.type, "number");
  EXPECT_EQ(rate.range, "> 0");
  EXPECT_EQ(rate.default_value, 3e-4);
  EXPECT_EQ(schema.find("optim.betas")->range, "2 values, >= 0 and < 1");
  EXPECT_EQ(schema.find("model.bits")->unit, "bits");
}

TEST(SchemaOf, NamesTypes) {
  const auto type = [](const char* path) { return test::settings_schema().find(path)->type; };
  EXPECT_EQ(type("optim.name"), "adamw|adam|sgd");
  EXPECT_EQ(type("optim.betas"), "list of numbers");
  EXPECT_EQ(type("optim.fused"), "auto|true|false");
  EXPECT_EQ(type("data.workers"), "auto|integer");
  EXPECT_EQ(type("data.cache"), "path");
  EXPECT_EQ(type("model.dropout"), "number|null");
  EXPECT_EQ(type("model.sizes"), "map of integers");
  EXPECT_EQ(type("model.stride"), "integer|text");
  EXPECT_EQ(type("model.blocks"), "list of {width, gated}");
  EXPECT_THAT(test::settings_schema().find("model.solver")->choices, ElementsAre("auto", "adamw", "adam", "sgd"));
  EXPECT_TRUE(test::settings_schema().find("optim.fused")->is_boolean);
  EXPECT_FALSE(test::settings_schema().find("optim.name")->is_boolean);
}

TEST(SchemaOf, PrefixesAndAddsSections) {
  Schema schema = schema_of<Block>("layer");
  EXPECT_NE(schema.find("layer.width"), nullptr);
  schema += schema_of<Block>("other");
  EXPECT_EQ(schema.leaves.size(), 4U);
  EXPECT_THROW(schema += schema_of<Block>("layer"), ConfigError);
}

TEST(ReadWrite, AreInverse) {
  Settings settings;
  settings.data.sources = {"a", "b"};
  settings.data.workers = 3;
  settings.data.cache = "/tmp/x";
  settings.optim = {.name = test::Algorithm::sgd, .learning_rate = 2, .betas = {0.5, 0.25}, .momentum = 0, .fused = true};
  settings.model.dropout = 0.5;
  settings.model.sizes = {{"deep", 7}};
  settings.model.stride = "half";
  settings.model.blocks = {{.width = 3, .gated = true}, {}};
  settings.model.solver = test::Algorithm::adam;
  const Json json = write(settings);
  EXPECT_EQ(json["optim"]["name"], "sgd");
  EXPECT_TRUE(json["optim"]["learning_rate"].is_number_float());
  EXPECT_EQ(json["model"]["start_from"], nullptr);
  const auto again = read<Settings>(json);
  EXPECT_EQ(write(again), json);
  EXPECT_EQ(again.optim, settings.optim);
  EXPECT_EQ(std::get<std::string>(again.model.stride), "half");
  EXPECT_EQ(again.model.blocks, settings.model.blocks);
  EXPECT_EQ(again.model.solver.value(), test::Algorithm::adam);
}

TEST(ReadWrite, MissingKeysKeepTheDefaultAndWrongKindsAreOurMistake) {
  EXPECT_EQ(read<Block>(Json::object()), Block{});
  EXPECT_THROW(static_cast<void>(read<Block>(Json{{"width", "wide"}})), InternalError);
  EXPECT_THROW(static_cast<void>(read<Block>(Json::array())), InternalError);
}

}  // namespace
}  // namespace millrace::config
