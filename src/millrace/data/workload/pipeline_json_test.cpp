#include "millrace/data/workload/pipeline_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "millrace/base/error.h"
#include "millrace/data/transforms/augment.h"

namespace millrace::data {
namespace {

using testing::HasSubstr;

constexpr const char* kRows = R"({"kind": "memory", "samples": 40, "shapes": {"x": [3, 4], "y": []}})";

std::string above(const std::string& keys, const std::string& below) { return "{" + keys + R"(, "of": )" + below + "}"; }

std::shared_ptr<const Source> source(const std::string& json) {
  return pipeline_from(Json::parse(json), {.name = "w.json, data"}).datasets.at(0).source;
}

// All bytes of a sample, read with the random numbers of the position that equals its index.
std::string bytes_of(const Source& source, std::int64_t index) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> rows;
  for (const Field& field : source.fields()) memory.emplace_back(field.bytes());
  for (auto& field : memory) rows.push_back(field.data());
  const std::int64_t position = index;
  source.read({&index, 1}, Rows{rows}, ReadRandom(7, 0, {&position, 1}));
  std::string all;
  for (const auto& field : memory) all.append(reinterpret_cast<const char*>(field.data()), field.size());
  return all;
}

TEST(PipelineJson, a_tree_is_what_the_functions_make) {
  const auto rows = source(kRows);
  const auto made = augment(random_subset(rows, {.to = 0.5, .seed = 3}), {"x"}, {random_flip({-1, -2}), random_roll({-1})});
  const auto read = source(above(
      R"("kind": "augment", "names": ["x"], "steps": [{"kind": "random_flip", "axes": [-1, -2]}, {"kind": "random_roll", "axes": [-1]}])",
      above(R"("kind": "share", "to": 0.5, "seed": 3)", kRows)));
  ASSERT_EQ(read->size(), made->size());
  EXPECT_EQ(read->fingerprint(), made->fingerprint());
  for (std::int64_t i = 0; i < made->size(); ++i) EXPECT_EQ(bytes_of(*read, i), bytes_of(*made, i)) << i;
}

TEST(PipelineJson, selects_joins_and_repeats) {
  const auto rows = source(kRows);
  EXPECT_EQ(source(above(R"("kind": "take", "count": 7)", kRows))->size(), 7);
  EXPECT_EQ(source(above(R"("kind": "repeat", "times": 3)", kRows))->size(), 120);
  const auto some = source(above(R"("kind": "subset", "indices": [5, 5, 1])", kRows));
  ASSERT_EQ(some->size(), 3);
  EXPECT_EQ(bytes_of(*some, 1), bytes_of(*rows, 5));
  const auto both = source(R"({"kind": "concat", "of": [)" + std::string(kRows) + ", " + kRows + "]}");
  ASSERT_EQ(both->size(), 80);
  EXPECT_EQ(bytes_of(*both, 41), bytes_of(*rows, 1));
  const auto held_out = source(above(R"("kind": "share", "from": 0.5, "seed": 3)", kRows));
  const auto kept = source(above(R"("kind": "share", "to": 0.5, "seed": 3)", kRows));
  EXPECT_EQ(held_out->size() + kept->size(), 40);
}

TEST(PipelineJson, groups_are_data_sets) {
  const Pipeline pipeline =
      pipeline_from(Json::parse(R"({"kind": "groups", "grouping": "mix", "weights": {"b": 2}, "of": {"a": )" +
                                std::string(kRows) + R"(, "b": )" + kRows + "}}"),
                    {});
  ASSERT_EQ(pipeline.datasets.size(), 2U);
  EXPECT_EQ(pipeline.grouping, Grouping::mix);
  EXPECT_EQ(pipeline.datasets[1].weight, 2.0);
  EXPECT_FALSE(pipeline.datasets[0].weight.has_value());
}

TEST(PipelineJson, every_step_has_its_kind) {
  const auto shape = [](const std::string& step) {
    return source(above(R"("kind": "augment", "names": ["x"], "steps": [)" + step + "]", kRows))->fields()[0].shape;
  };
  EXPECT_EQ(shape(R"({"kind": "random_crop", "size": [2, 2]})"), (Shape{2, 2}));
  EXPECT_EQ(shape(R"({"kind": "centre_crop", "size": [4], "margin": [1], "border": "reflect"})"), (Shape{3, 4}));
  EXPECT_EQ(shape(R"({"kind": "pad", "margin": [1, 0], "value": 2})"), (Shape{5, 4}));
  EXPECT_EQ(shape(R"({"kind": "normalise", "mean": [0.5], "deviation": [2]})"), (Shape{3, 4}));
  EXPECT_EQ(shape(R"({"kind": "gaussian_noise", "deviation": 0.1})"), (Shape{3, 4}));
}

TEST(PipelineJson, files_by_name_and_by_pattern) {
  for (const char* name : {"p1.npz", "p0.npz", "q.npz"}) std::ofstream(name) << "";
  const auto refusal = [](const std::string& files) -> std::string {
    try {
      (void)source(R"({"kind": "npz", "files": [)" + files + "]}");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal("\"p*.npz\""), HasSubstr("p0.npz"));  // the first, by name: it is opened, and is damaged
  EXPECT_THAT(refusal("\"r*.npz\""), HasSubstr("no file matches \"r*.npz\""));
  EXPECT_THAT(refusal(""), HasSubstr("files"));
  EXPECT_THAT(refusal("\"none.npz\""), HasSubstr("none.npz"));
}

// The files that a folder's loader does not read are missing from the training, and nothing else would say so.
TEST(PipelineJson, what_folders_leave_out_is_noted) {
  for (const char* folder : {"mixed/a", "mixed/b"}) {
    std::filesystem::create_directories(folder);
    for (const char* name : {"/1.png", "/2.webp"}) std::ofstream(std::string(folder) + name) << "";
  }
  const auto notices = [](const char* json) {
    std::vector<std::string> lines;
    (void)pipeline_from(Json::parse(json), {.folder = "", .notices = &lines});
    std::string text;
    for (const std::string& line : lines) text += line + '\n';
    return text;
  };
  EXPECT_THAT(notices(R"({"kind": "images", "files": ["mixed/a"]})"),
              HasSubstr("1 of 2 names in mixed/a is left out: \"2.webp\""));
  const std::string labelled = notices(R"({"kind": "images", "labelled": "mixed"})");
  EXPECT_THAT(labelled, testing::AllOf(HasSubstr("in mixed/a is left out"), HasSubstr("in mixed/b is left out")));
  EXPECT_EQ(notices(R"({"kind": "images", "files": ["mixed/a/1.png"]})"), "");
}

TEST(PipelineJson, files_that_are_named_twice_are_noted) {
  std::filesystem::create_directories("twice");
  for (const char* name : {"twice/1.png", "twice/2.png"}) std::ofstream(name) << "";
  std::vector<std::string> lines;
  (void)pipeline_from(Json::parse(R"({"kind": "images", "files": ["twice/*.png", "twice/2.png"]})"),
                      {.folder = "", .notices = &lines});
  EXPECT_THAT(lines, testing::ElementsAre(HasSubstr("1 of 3 files are named twice")));
}

TEST(PipelineJson, mistakes_name_their_place) {
  const auto what = [](const std::string& json) -> std::string {
    try {
      (void)source(json);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(what("3"), HasSubstr("a part is not a JSON object"));
  EXPECT_THAT(what("{}"), HasSubstr("a part has no kind"));
  EXPECT_THAT(what(R"({"kind": "take", "count": 2})"), HasSubstr("no part below it"));
  EXPECT_THAT(what(above(R"("kind": "take", "cont": 2)", kRows)), testing::AllOf(HasSubstr("count"), HasSubstr("w.json, data")));
  EXPECT_THAT(what(above(R"("kind": "take", "count": 2)", R"({"kind": "csv", "file": 3})")), HasSubstr("w.json, data.of"));
  EXPECT_THAT(what(above(R"("kind": "augment", "names": ["x"], "steps": [{"kind": "turn"}])", kRows)),
              testing::AllOf(HasSubstr("there is no kind \"turn\""), HasSubstr("steps[0]")));
  EXPECT_THAT(what(above(R"("kind": "augment", "names": ["z"], "steps": [{"kind": "random_roll", "axes": [-1]}])", kRows)),
              HasSubstr("\"z\""));
  EXPECT_THAT(what(above(R"("kind": "map", "name": "f", "function": 0)", kRows)), HasSubstr("function 0 is not there"));
  EXPECT_THAT(what(R"({"kind": "groups"})"), HasSubstr("no data sets"));
  EXPECT_THAT(what(R"({"kind": "images", "files": ["a.png"], "labelled": "b"})"),
              HasSubstr("\"files\" and \"labelled\" are both given"));
}

TEST(PipelineJson, arrays_in_memory_are_whole_or_refused) {
  std::ofstream("whole.f32", std::ios::binary) << std::string(24, '\0');
  std::ofstream("cut.f32", std::ios::binary) << std::string(27, '\0');
  const auto refusal = [](const std::string& keys) -> std::string {
    try {
      (void)source(R"({"kind": "memory", )" + keys + "}");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(R"("arrays": {"x": "whole.f32"}, "shapes": {"x": [3]})"), "");
  EXPECT_THAT(refusal(R"("arrays": {"x": "cut.f32"}, "shapes": {"x": [3]})"),
              testing::AllOf(HasSubstr("cut.f32 has 27 bytes"), HasSubstr("arrays.x")));
  std::ofstream("x.npy", std::ios::binary) << "\x93NUMPY\x01" << std::string(121, ' ');
  EXPECT_THAT(refusal(R"("arrays": {"x": "x.npy"}, "shapes": {"x": [4]})"), HasSubstr("x.npy is a .npy file: its header"));
  EXPECT_THAT(refusal(R"("arrays": {"x": "whole.f32"}, "shapes": {"x": [3], "y": [1]})"), HasSubstr("\"y\", which has no file"));
  EXPECT_THAT(refusal(R"("shapes": {"x": [-1]})"), HasSubstr("can't have the shape [-1]"));
  EXPECT_THAT(refusal(R"("shapes": {"x": [4294967296, 1024]})"), HasSubstr("in 20000 samples"));
  EXPECT_THAT(refusal(R"("shapes": {"x": [1]}, "window": 9223372036854775807)"), HasSubstr("in 20000 samples"));
}

TEST(PipelineJson, help_names_every_kind) {
  const std::string help = pipeline_kinds_text();
  for (const char* kind : {"hdf5", "nifti", "images", "npy", "npz", "csv", "tokens", "memory", "sleeping", "augment", "share",
                           "subset", "take", "repeat", "concat", "map", "groups", "random_crop", "gaussian_noise"}) {
    EXPECT_THAT(help, HasSubstr(std::string("\n") + kind + " "));
  }
}

}  // namespace
}  // namespace millrace::data
