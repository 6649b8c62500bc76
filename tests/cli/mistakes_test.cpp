// Mistakes of recipe authors, one per row: how each is made, its message, and when the message comes. Every message has its three
// parts and names a place in the author's code or data; no message speaks of a mistake in Millrace; a mistake that a rehearsal
// can find leaves no step.
#include <gmock/gmock.h>

#include <set>
#include <span>
#include <stdexcept>

#include "process.h"

namespace millrace::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

enum class Found : std::uint8_t {
  before,  // before the first step: none was made, and no run folder is left
  step,    // at a step: nothing earlier could see it
  warned,  // the run goes on, and a line says what is odd
  works    // was no mistake of the author's: it works
};

struct Row {
  std::string name;
  Words says;  // what, where, next: all in stderr
  Found found = Found::before;
  int exit_code = 1;
  Words words = {};                            // empty: trains recipe `mistakes` with the mistake of that name
  void (*prepare)(const fs::path&) = nullptr;  // makes files in the folder where the command runs
  std::string entry = {};                      // what is wrong with the program's entries
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

Result mistakes(Words words, const fs::path& folder, const std::string& entry = "") {
  words.insert(words.begin(), MISTAKES_PROGRAM);
  return run(words, {.folder = folder, .environment = {{"MISTAKE_IN_ENTRY", entry}}});
}

// A .npy file of zeros and what `fill` makes of them.
template <class T>
void write_npy(
    const fs::path& file, const std::string& dtype, const std::vector<std::size_t>& shape,
    void (*fill)(std::span<T>) = [](std::span<T>) {}) {
  std::string header = "{'descr': '" + dtype + "', 'fortran_order': False, 'shape': (";
  std::size_t count = 1;
  for (const std::size_t size : shape) {
    header += std::to_string(size) + ",";
    count *= size;
  }
  header += ")}";
  header += std::string(128 - 10 - header.size() - 1, ' ') + "\n";
  std::vector<T> values(count);
  fill(values);
  std::string bytes = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header;
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  write_text(file, bytes);
}

void write_data(
    const fs::path& folder, void (*labels)(std::span<std::int64_t>) = [](std::span<std::int64_t>) {}) {
  fs::create_directories(folder);
  write_npy<float>(folder / "train_x.npy", "<f4", {24, 8}, [](std::span<float> x) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7);
  });
  write_npy<std::int64_t>(folder / "train_label.npy", "<i8", {24}, labels);
  write_npy<float>(folder / "val_x.npy", "<f4", {16, 8});
  write_npy<std::int64_t>(folder / "val_label.npy", "<i8", {16});
}

// A run of two epochs, made once.
const fs::path& trained() {
  static const Scratch scratch;
  static const bool made = mistakes({"train", "mistakes", "--run", "r"}, scratch.path()).exit_code == 0;
  if (!made) throw std::runtime_error("the recipe without a mistake does not train");
  static const fs::path run = scratch.path() / "r";
  return run;
}

void copy_run(const fs::path& folder) { fs::copy(trained(), folder / "r", fs::copy_options::recursive); }

void train_on_files(const fs::path& folder) {
  write_data(folder / "d");
  ASSERT_EQ(mistakes({"train", "mistakes", "--run", "r", "--data", "d"}, folder).exit_code, 0);
}

Words train(Words more) {
  more.insert(more.begin(), {"train", "mistakes", "--run", "r"});
  return more;
}

Words grouped(const std::string& mistake) { return {"train", "grouped", "--run", "r", "--plant.mistake=" + mistake}; }

Words predict(const std::string& input, Words more = {}) {
  more.insert(more.begin(), {"predict", "mistakes", "--from", "r", "--input", input, "--output", "out.npy"});
  return more;
}

// 1: what a loss is and gives.
void add_losses(std::vector<Row>& rows) {
  const std::string place = "objective \"main\", training batch 0 of epoch 0, step 1";
  const std::string fields = "fields: label i64 [8], x f32 [8,8]";
  const std::string in_loss = "recipe mistakes failed in loss(): ";
  const auto add = [&](const std::string& name, const std::string& what, const std::string& next) {
    rows.push_back({.name = name, .says = {in_loss + what, place, fields, next}});
  };
  add("field_typo", "the batch has no field \"X\"; its fields: label, x", "did you mean \"x\"?");
  add("own_exception", "radius is negative", "this is the text of the exception");
  add("throws_a_number", "it threw the number 42", "derived from std::exception");
  add("throws_a_text", "it threw a text: radius is negative", "derived from std::exception");
  rows.push_back({"layer_too_narrow", {in_loss + "LibTorch refused", "mat1 and mat2", place, fields, "compare the shapes"}});
  for (const char* name : {"no_gradient_detach", "no_gradient_item", "no_gradient_guard"})
    add(name, "the loss has no gradient", "look for a detach(), item(), NoGradGuard");
  add("no_terms", "the loss has no terms", "return nullopt where the objective is absent");
  add("two_terms_one_name", "two terms of the loss have no name", "name each term");
  add("sum_is_no_scalar", "the loss has a sum of shape [8,3], expected a scalar", "values.sum()");
  add("sum_is_missing", "the loss has no sum", "values.sum()");
  add("count_is_missing", "the loss has no count", "say how many values the sum adds up");
  add("count_is_no_scalar", "the loss has a count of shape [8], expected a scalar", "say how many values the sum adds up");
  add("nominal_count_is_zero", "the loss has the nominal_count 0", "above 0");
  add("output_is_missing_a_tensor", "output \"logits\" of the loss has no tensor", "leave it out");
  const std::string batch = "training batch 0 of epoch 0";
  rows.push_back({"in_place_on_a_saved_tensor",
                  {"the backward pass of objective \"main\" failed", "inplace operation", batch, fields, "write b = a + 1"}});
  rows.push_back(
      {"count_is_zero", {"objective \"main\" counts no values in the first training batch", "LossTerm::count", "masks"}});
  rows.push_back({"count_is_negative", {"objective \"main\" counts -8 values", "LossTerm::count", "the number of values"}});
  rows.push_back({"always_absent", {"no objective has a loss in the first step", batch, "return a Loss"}});
  rows.push_back({"loss_is_not_a_number", {"warning: the first training batch gives no finite main: nan"}, Found::warned, 0});
  rows.push_back({"throws_after_a_while",
                  {in_loss + "radius is negative", "objective \"main\", training batch 1 of epoch 1, step 5", fields},
                  Found::step});
}

// 2: the model, objectives and the callbacks around a run.
void add_callbacks(std::vector<Row>& rows) {
  const auto add = [&](const std::string& name, const std::string& callback, const std::string& what, const std::string& next) {
    rows.push_back({.name = name, .says = {"recipe mistakes failed in " + callback + ": " + what, "Recipe::" + callback, next}});
  };
  const std::string objectives = "objectives()";
  add("null_loss", objectives, "objective \"main\" has no loss", "set Objective::loss");
  add("two_objectives_one_name", objectives, "two objectives have the name \"main\"", "give each its own");
  add("a_parameter_of_two_objectives", objectives,
      "parameter \"hidden.0.weight\" is updated by objective \"main\" and by objective", "terms of one objective");
  add("foreign_parameter", objectives, "parameter \"stray\" of objective \"main\" does not belong to model()", "register it");
  add("model_is_made_anew", "model()", "model() returned another module than before", "keep it as a member");
  add("before_training_throws", "before_training()", "the catalogue is not sorted", "");
  add("history_twice", "facts()", "Facts::history names the column \"accuracy\" twice", "once");
  add("rate_of_no_units", "facts()", "Facts::units_per_sample is 0", "above 0");
  add("samples_throw", "samples()", "no such word", "");
  add("state_throws", "state()", "the table was never filled", "");
  rows.push_back({"no_objective", {"the recipe has no objective", "objectives()", "return at least one objective"}});
  rows.push_back(
      {"all_frozen", {"objective \"main\" has nothing to train", "Recipe::objectives()", "requires"}, Found::before, 2});
  rows.push_back({"unused_layer", {"2 parameters get no gradient", "spare.weight, spare.bias"}, Found::warned, 0});
  const std::string made = "recipe mistakes failed when it was made: ";
  rows.push_back({"constructor_throws", {made + "stoi", "Entry::make"}});
  rows.push_back({"constructor_throws_a_text", {made + "it threw a text: no such option", "Entry::make"}});
  const std::string prepare = "recipe mistakes failed in prepare(): ", batch = "training batch 0 of epoch 0";
  rows.push_back({"prepare_throws", {prepare + "the noise table has 7 columns", batch, "x f32 [8,8]"}});
  rows.push_back({"prepare_asks_for_a_wrong_field", {prepare + "the batch has no field \"X\"", batch, "did you mean \"x\"?"}});
  rows.push_back({"prepare_drops_rows", {prepare + "field \"x\" of the prepared batch has the shape [4,8]", "8 rows", batch}});
  rows.push_back({"prepare_gives_nothing", {prepare + "field \"x\" of the prepared batch has no tensor", batch}});
}

// 3: metrics and pictures.
void add_metrics(std::vector<Row>& rows) {
  const std::string in_measure = "recipe mistakes failed in measure(): ", batch = "validation batch 0";
  const auto add = [&](const std::string& name, const std::string& what, const std::string& place) {
    rows.push_back({.name = name,
                    .says = {in_measure + what, place, batch, "fields: label i64 [8]", "outputs: logits f32 [8,3]"},
                    .words = train({"--plant.mistake=" + name, "--precision.dtype=fp32"})});
  };
  add("missing_output", "at() was asked for a name that the map does not have", "compare the names");
  add("measure_throws", "an empty histogram", "this is the text of the exception");
  add("metric_is_a_matrix", "the sum has shape [8,3], expected a scalar", "metric \"sure\"");
  add("metric_of_two_kinds", "the name is in use by a mean; a log_mean was added under it", "metric \"sure\"");
  add("rate_of_numbers", "a rate counts true values, but f32[8,3] was given", "metric \"sure\"");
  add("metric_named_as_the_loss", "the name is in use by a mean; a correlation was added under it", "metric \"val_main\"");
  add("too_few_class_names", "2 names of classes were given, but the logits [8,3] have 3", "metric \"confusion\"");
  rows.push_back({"metrics_share_a_name", {"two metrics have this name", "metric \"accuracy\"", "another name"}});
  rows.push_back(
      {"regression_of_unlike_shapes",
       {"the prediction has shape [8,3], but the target has shape [8]", "recipe mistakes, measure(), validation batch 0"}});
  rows.push_back({"labels_float_in_measure", {"are f32, but class ids are integers", "recipe mistakes, measure(), " + batch}});
  rows.push_back({"column_of_labels_flattened_in_the_loss",
                  {"[8,3] need labels of shape [8], the labels have shape [8,1]", "\"confusion\"", "measure(), " + batch}});
  rows.push_back(
      {"history_typo", {"a column \"acuracy\", but no metric has that name", "Facts::history", "did you mean \"accuracy\"?"}});
  const std::string in_draw = "recipe mistakes failed in draw(): ";
  const auto draws = [&](const std::string& name, const std::string& what, const std::string& next) {
    rows.push_back({.name = name, .says = {in_draw + what, "Recipe::draw()", next}});
  };
  draws("draw_throws", "nothing was kept to draw", "");
  draws("picture_too_small", "picture \"dots\" has 3 bytes, and 2 x 2 pixels need 12", "three bytes a pixel");
  draws("picture_with_a_slash", "picture \"../dots\" has a name that is not a valid file name", "leave out slashes");
  draws("picture_without_a_name", "a picture has no name", "pictures/NAME.png");
  draws("picture_twice", "two pictures have the name \"dots\"", "give each its own");
}

// 4: samples and sources.
void add_data(std::vector<Row>& rows) {
  const std::string in_data = "recipe mistakes failed in data(Split::train): ", place = "Recipe::data(Split::train)";
  const auto add = [&](const std::string& name, const std::string& what, const std::string& next) {
    rows.push_back({.name = name, .says = {in_data + what, place, next}});
  };
  add("null_source", "the data set has no source", "not a null pointer");
  add("two_data_sets_one_name", "two data sets have the name \"a\"", "give each its own");
  add("data_throws", "the archive is locked", "");
  add("own_source_negative_size", "the source of the data set has the size -1", "the number of samples");
  add("own_source_negative_field", "field \"x\" of the data set has the shape [-8]", "the shape of one sample");
  add("own_source_field_twice", "the data set has two fields \"x\"", "its own name");
  add("own_source_no_fields", "the source of the data set has no fields", "fields()");
  rows.push_back({"own_source_empty_field", {"mat1 and mat2 shapes cannot be multiplied (8x0", "x f32 [8,0]"}});
  const std::string batch = "batch 0 of epoch 0";
  rows.push_back({"own_source_throws", {"can't be read: the detector's calibration is missing", "sample ", batch}});
  rows.push_back({"own_source_throws_a_number", {"its source threw something that is not a std::exception", "sample ", batch}});
  rows.push_back({"own_source_refuses_a_sample", {"the picture is black", "night.fits", "sample 5, " + batch, "leave it out"}});
  rows.push_back({"generate_throws", {"sample 5 can't be read: no table for this angle", batch}});
  const Words typed = {"field \"x\" holds f32, not f64", "values<T>(\"x\")", "sample ", batch};
  rows.push_back({"generate_writes_another_type", typed, Found::before, 2});
  rows.push_back(
      {"generate_writes_a_wrong_field", {"no field \"y\"", "its fields are \"x\", \"label\"", batch}, Found::before, 2});
  rows.push_back(
      {"keeps_rows_and_draws", {"draws random numbers in read()", "keeps() of its source", "finish()"}, Found::before, 2});
  rows.push_back(
      {"keeps_parts_without_bytes", {"part 0 of the data set has 0 bytes", "part_bytes()", "load()"}, Found::before, 2});
  rows.push_back({"no_training_data", {"recipe mistakes has no training data", place}, Found::before, 2});
  rows.push_back({"empty_validation", {"the validation data has no samples", "data()", "check the paths"}, Found::before, 2});
  rows.push_back(
      {"arrays_of_unlike_length", {"array \"label\" holds 23 samples, \"x\" holds 24", "recipe mistakes, data(Split::train)"}});
  rows.push_back(
      {"label_out_of_range", {"label 10 of row ", "is not one of the 3 classes 0..2", "sample 7", "batch 0", "label i64 [8]"}});
  rows.push_back({"label_out_of_range_in_validation", {"label -1 of row 2", "sample 2", "validation batch 0"}});
  rows.push_back({"labels_i32", {"the labels are i32[8], but a cross-entropy takes i64", batch, "convert them in prepare()"}});
  rows.push_back({"labels_in_a_column", {"[8,3] need labels of shape [8], the labels have shape [8,1]", batch, "squeeze(1)"}});
  rows.push_back({"not_a_number_in_the_data",
                  {"the first training batch gives no finite main: nan (field \"x\" of sample 5 is not finite)"},
                  Found::warned,
                  0,
                  train({"--plant.mistake=not_a_number_in_the_data", "--data.shuffle=false"})});
  rows.push_back(
      {"label_out_of_range_in_a_file",
       {"label 10 of row ", "sample 7 (d/train_x.npy, d/train_label.npy row 7)", "objective \"main\", training batch"},
       Found::before,
       1,
       train({"--data", "d", "--data.batch_size=24"}),
       [](const fs::path& folder) { write_data(folder / "d", [](std::span<std::int64_t> labels) { labels[7] = 10; }); }});
}

// 5: two data sets.
void add_groups(std::vector<Row>& rows) {
  const auto add = [&](const std::string& name, const Words& says, Found found = Found::before, int exit_code = 1) {
    rows.push_back({name, says, found, exit_code, grouped(name)});
  };
  const std::string in_loss = "recipe grouped failed in loss(): ";
  const std::string place = "objective \"loss\", training batch 0 of epoch 0, step 1";
  const std::string fields = "left: x f32 [8,4], y f32 [8,1]; right: x f32 [8,6], y f32 [8,1]";
  add("two_groups_one_name", {"two data sets have the name \"left\"", "Recipe::data(Split::train)"});
  add("field_of_a_grouped_batch", {in_loss + "field \"x\" was read from a batch of 2 groups", place, fields, "one of groups()"});
  add("group_field_typo", {in_loss + "at() was asked for a name that the map does not have", place, fields, "compare the names"});
  add("layer_of_another_group", {in_loss + "LibTorch refused an operation: ", "mat1 and mat2", place, fields});
  add("target_of_another_shape", {"different shapes: predicted f32 [8,1], target f32 [8]", place, fields, "unsqueeze(1)"});
  add("bad_target_of_a_group", {"the target is negative", "sample 3 of data set \"right\"", "recipe grouped, loss()", fields});
  add("mean_of_an_empty_group", {"loss/right nan", "skipped 1"}, Found::warned, 0);
  add("group_batch_size_zero", {"the batch size of data set \"right\" is 0", "data()"}, Found::before, 2);
  add("group_weights_of_wrong_length", {"weights of data set \"left\" for epoch 0 are 3 numbers for 24 samples", "data()"},
      Found::before, 2);
}

// 6: the program's entries.
void add_entries(std::vector<Row>& rows) {
  const auto add = [&](const std::string& name, const Words& says, int exit_code) {
    rows.push_back({name, says, Found::before, exit_code, train({"--preset", "smoke"}), nullptr, name});
  };
  add("default_of_no_key", {"unknown key \"optim.lerning_rate\"", "recipe mistakes", "did you mean optim.learning_rate?"}, 2);
  add("default_of_wrong_type", {"data.batch_size is \"many\", expected \"auto\" or an integer", "recipe mistakes"}, 2);
  add("preset_of_no_key", {"unknown key \"trian.epochs\"", "preset smoke", "did you mean train.epochs?"}, 2);
  add("alias_of_no_key", {"alias \"bs\" stands for \"data.batchsize\", which is no key", "Entry::aliases", "data.batch_size"}, 2);
  add("section_of_a_shared_name", {"config key \"optim.learning_rate\" is declared twice", "Entry::sections", "another name"}, 2);
  add("two_entries_one_name", {"two entries have the name \"mistakes\"", "cli_main()", "its own name"}, 1);
  add("entry_without_make", {"entry \"mistakes\" can make no recipe: Entry::make is empty", "cli_main()", "entry_of()"}, 1);
  add("entry_without_a_name", {"entry 0 has no name", "cli_main()", "Entry::name"}, 1);
  add("entry_makes_nothing", {"the entry of recipe mistakes made no recipe", "Entry::make", "return a recipe"}, 1);
  add("problems_throw", {"recipe mistakes failed in Entry::problems: odd", "Entry::problems of recipe mistakes"}, 1);
}

// 7: configs and flags.
void add_configs(std::vector<Row>& rows) {
  const auto add = [&](const std::string& name, const Words& flags, const Words& says) {
    rows.push_back({name, says, Found::before, 2, train(flags)});
  };
  add("flag_out_of_range", {"--net.dropout=1.5"}, {"net.dropout is 1.5, out of range", "flag --net.dropout", ">= 0 and < 1"});
  add("flag_of_wrong_type", {"--net.widths=many"}, {"net.widths[0] is \"many\", expected an integer", "flag --net.widths"});
  add("list_that_is_empty", {"--net.widths=[]"}, {"net.widths has 0 values, expected at least 1", "flag --net.widths"});
  add("keys_that_do_not_fit", {"--net.heads=3"}, {"net.widths ends in 8, which 3 heads do not divide", "flag --net.heads"});
  add("flag_typo", {"--net.dropuot=0.5"}, {"unknown flag --net.dropuot", "command line", "did you mean --net.dropout?"});
  add("preset_typo", {"--preset=smok"},
      {"recipe mistakes has no preset \"smok\"", "flag --preset=smok", "did you mean \"smoke\"?"});
  add("best_metric_typo", {"--snapshot.best_metric=acuracy"},
      {"the validation gives no metric \"acuracy\"", "snapshot.best_metric", "did you mean \"accuracy\"?"});
  add("best_metric_without_validation", {"--snapshot.best_metric=accuracy", "--plant.mistake=no_validation"},
      {"there is no validation", "snapshot.best_metric", "remove the key"});
  add("batch_that_no_memory_holds", {"--data.batch_size=1000000000"}, {"one batch takes 40 GB", "data.batch_size", "lower"});
  add("batch_larger_than_the_data", {"--data.batch_size=100", "--data.drop_last=true"},
      {"no batch is left of the training data: 24 samples, batch size 100", "data.drop_last", "lower data.batch_size"});
  rows.push_back({"values_of_wrong_type_in_a_file",
                  {"2 problems in the config", "net.dropout is \"much\", expected a number", "file c.json:2",
                   "optim.learning_rate is -1, out of range", "file c.json:3"},
                  Found::before,
                  2,
                  train({"c.json"}),
                  [](const fs::path& folder) {
                    write_text(folder / "c.json",
                               "{\n  \"net\": {\"dropout\": \"much\"},\n  \"optim\": {\"learning_rate\": -1}\n}\n");
                  }});
  rows.push_back({"data_folder_that_is_not_there",
                  {"\"nowhere/train_x.npy\" can't be opened", "recipe mistakes, data(Split::train)", "check the path"},
                  Found::before,
                  1,
                  train({"--data", "nowhere"})});
}

// 8: a run that goes on.
void add_resumes(std::vector<Row>& rows) {
  const Words more = train({"--train.epochs=3"});
  const auto with = [&](const std::string& mistake) {
    Words words = more;
    words.push_back("--plant.mistake=" + mistake);
    return words;
  };
  rows.push_back({"model_was_edited",
                  {"the saved weights do not fit the model", "hidden.0.weight is [8,8], but the model has [8,7]", "--fresh"},
                  Found::before,
                  1,
                  with("layer_too_narrow"),
                  copy_run});
  rows.push_back({"layer_was_added",
                  {"the saved weights do not fit the model", "spare.weight is missing", "--fresh"},
                  Found::before,
                  1,
                  with("unused_layer"),
                  copy_run});
  rows.push_back({"load_state_asks_for_another_name",
                  {"recipe mistakes failed in load_state(): at() was asked for a name", "Recipe::load_state()"},
                  Found::before,
                  1,
                  with("load_state_asks_for_another_name"),
                  copy_run});
  rows.push_back(
      {"config_was_changed",
       {"net.widths is [16], but the run in this folder was started with [8]", "flag --net.widths", "the run was begun by:"},
       Found::before,
       2,
       train({"--net.widths=16"}),
       copy_run});
  rows.push_back({"data_was_changed",
                  {"the data has changed since the run began", "train_label.npy", "data.accept_changed"},
                  Found::before,
                  1,
                  train({"--train.epochs=3", "--data", "d"}),
                  [](const fs::path& folder) {
                    train_on_files(folder);
                    write_data(folder / "d", [](std::span<std::int64_t> labels) { labels[7] = 1; });
                  }});
  rows.push_back(
      {"data_was_moved", {}, Found::works, 0, train({"--train.epochs=3", "--data", "./e/../e"}), [](const fs::path& folder) {
         train_on_files(folder);
         fs::rename(folder / "d", folder / "e");
       }});
  rows.push_back({"config_file_left_out", {}, Found::works, 0, more, [](const fs::path& folder) {
                    write_text(folder / "c.json", R"({"net": {"widths": [5]}})");
                    ASSERT_EQ(mistakes(train({"./c.json"}), folder).exit_code, 0);
                  }});
  rows.push_back({"eval_of_data_beside_the_config", {}, Found::works, 0, {"eval", "--from", "r"}, [](const fs::path& folder) {
                    write_data(folder / "cfg" / "d");
                    write_text(folder / "cfg" / "c.json", R"({"data": {"dir": "d"}})");
                    ASSERT_EQ(mistakes(train({"cfg/c.json"}), folder).exit_code, 0);
                  }});
  rows.push_back({"eval_of_a_wrong_measure",
                  {"recipe mistakes failed in measure(): at() was asked", "validation batch 0"},
                  Found::before,
                  1,
                  {"eval", "--from", "r", "--plant.mistake=missing_output"},
                  copy_run});
}

void with_input(const fs::path& folder) {
  copy_run(folder);
  write_npy<float>(folder / "x.npy", "<f4", {5, 8});
  write_npy<float>(folder / "narrow.npy", "<f4", {5, 7});
  write_npy<double>(folder / "complex.npy", "<c8", {5, 8});
  write_npy<float>(folder / "empty.npy", "<f4", {0, 8});
  write_text(folder / "x.txt", "1 2 3");
  write_text(folder / "cut.npy", read_text(folder / "x.npy").substr(0, 200));
}

// 9: prediction.
void add_predictions(std::vector<Row>& rows) {
  const auto add = [&](const std::string& name, const Words& words, const Words& says, int exit_code) {
    rows.push_back({name, says, Found::before, exit_code, words, with_input});
  };
  const std::string in_predict = "recipe mistakes failed in predict(): ", says = "recipe mistakes, Entry::predicts";
  rows.push_back({"predict_asks_for_a_wrong_name", {in_predict + "at() was asked", "input: x f32 [2,8]"}});
  rows.push_back({"predict_throws_a_number", {in_predict + "it threw the number 3", "input: x f32 [2,8]"}});
  rows.push_back(
      {"predict_gives_fewer_rows", {"output \"label\" of predict() is [1] for 2 rows", "recipe mistakes", "as many rows"}});
  rows.push_back({"predict_gives_another_name", {"predict() gives no \"label\"", says, "\"label\" i64 [rows]"}});
  rows.push_back({"predict_gives_another_dtype", {"gives label f32 [2], but the entry says \"label\" i64 [rows]", says}});
  rows.push_back({"predict_gives_another_shape", {"gives label i64 [2,3], but the entry says \"label\" i64 [rows]", says}});
  add("predict_alone_throws", predict("x.npy", {"--plant.mistake=predict_throws_a_number"}),
      {in_predict + "it threw the number 3", "input: x f32 [5,8]"}, 1);
  add("input_of_unknown_kind", predict("x.txt"), {"what kind of file \"x.txt\" is", "flag --input", ".npy"}, 2);
  Words into_text = predict("x.npy");
  into_text.back() = "out.txt";
  add("output_of_unknown_kind", into_text, {"what kind of file \"out.txt\" is", "flag --output", ".npy"}, 2);
  const std::string takes = "recipe mistakes takes \"x\" f32 [rows,8]";
  add("input_of_wrong_shape", predict("narrow.npy"), {"tensor \"x\" f32 [5,7] is not what", "narrow.npy holds", takes}, 2);
  add("input_of_wrong_type", predict("complex.npy"), {"tensor \"x\" c64 [5,8] is not what", "complex.npy holds", takes}, 2);
  add("input_without_rows", predict("empty.npy"), {"the input has no rows", "empty.npy holds", takes}, 2);
  add("input_cut_off", predict("cut.npy"), {"cut.npy"}, 1);
  add("key_that_predict_does_not_use", predict("x.npy", {"--optim.learning_rate=3"}), {"optim.learning_rate"}, 2);
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (const auto add :
       {add_losses, add_callbacks, add_metrics, add_data, add_groups, add_entries, add_configs, add_resumes, add_predictions})
    add(rows);
  return rows;
}

std::set<std::string> snapshots_in(const fs::path& run) {
  std::set<std::string> names;
  if (!fs::exists(run / "snapshots")) return names;
  for (const auto& entry : fs::directory_iterator(run / "snapshots")) names.insert(entry.path().filename().string());
  return names;
}

class Mistakes : public testing::TestWithParam<Row> {};

// A program with debug information: the line of the throw, and none where our own check of what was returned throws.
TEST(MistakesInADebugBuild, HaveTheLineOfTheirSource) {
  const std::string source = read_text(MISTAKES_SOURCE);
  for (const std::string name : {"field_typo", "own_exception"}) {
    const auto here = source.begin() + static_cast<std::ptrdiff_t>(source.find("plants(\"" + name + "\")"));
    const auto line = std::to_string(std::count(source.begin(), here, '\n') + 1);
    EXPECT_THAT(mistakes(train({"--plant.mistake=" + name}), Scratch().path()).err,
                HasSubstr("mistakes/recipe.cpp:" + line + "\n"));
  }
  EXPECT_THAT(mistakes(train({"--plant.mistake=no_gradient_detach"}), Scratch().path()).err, Not(HasSubstr("recipe.cpp:")));
}

TEST_P(Mistakes, AreTold) {
  const Row& row = GetParam();
  const Scratch scratch;
  if (row.prepare != nullptr) row.prepare(scratch.path());
  const fs::path folder = scratch.path() / "r";
  const bool was_there = fs::exists(folder);
  const auto before = snapshots_in(folder);
  const Result result =
      mistakes(row.words.empty() ? train({"--plant.mistake=" + row.name}) : row.words, scratch.path(), row.entry);
  const std::string all = result.out + result.err;
  SCOPED_TRACE(all);
  EXPECT_EQ(result.exit_code, row.exit_code);
  for (const std::string& words : row.says) EXPECT_THAT(row.exit_code != 0 ? result.err : all, HasSubstr(words));
  EXPECT_THAT(all, Not(HasSubstr("istake in Millrace")));
  EXPECT_THAT(all, Not(HasSubstr("report it")));
  if (row.exit_code != 0) {
    EXPECT_THAT(result.err, testing::ContainsRegex("(^|\n)(Recipe|Data|Config|Usage|Snapshot)Error  [^\n]+\n"));
    EXPECT_THAT(result.err, HasSubstr("where    "));
    EXPECT_THAT(result.err, HasSubstr("next     "));
  }
  const bool stepped = all.find("\nstep 1/") != std::string::npos;
  if (row.found == Found::before) {
    EXPECT_FALSE(stepped);
    EXPECT_EQ(fs::exists(folder), was_there);
    EXPECT_EQ(snapshots_in(folder), before);
  }
  if (row.found == Found::step || row.found == Found::warned) {
    EXPECT_TRUE(stepped);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Mistakes, testing::ValuesIn(all_rows()), [](const auto& row) { return row.param.name; });

// Names of rows are names of mistakes: a typo would train a recipe without one.
TEST(MistakesTable, HasEveryRowOnce) {
  const std::vector<Row> rows = all_rows();
  std::set<std::string> names;
  for (const Row& row : rows) EXPECT_TRUE(names.insert(row.name).second) << row.name;
  EXPECT_GE(rows.size(), 50U);
}

}  // namespace
}  // namespace millrace::test
