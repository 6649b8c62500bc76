// Files that only recipes read: skies, uvh5, labels, weights.
#include <map>
#include <optional>

#include "millrace/base/error.h"
#include "millrace/train/assembly/weights.h"
#include "probe.h"
#include "recipes/cosmology/originals/uvh5_file.h"
#include "recipes/cosmology/sky_axes.h"
#include "recipes/image_pairs/labels.h"

namespace millrace::field {
namespace {

// As the commands do it: all problems at once.
void refuse(const std::vector<Problem>& problems) {
  if (!problems.empty()) throw DataError(problems.front());
}

}  // namespace

void read_sky(const Json& request, Answer& answer) {
  const auto file = hdf5::File::open(request.at("path").get<std::string>());
  std::vector<Problem> problems;
  const auto words = recipes::cosmology::words_of(*file, "/vis", file->dataset("/vis").shape, problems);
  refuse(problems);
  answer.put_list<double>("freq_mhz", DType::f64, words.freq_mhz);
  answer.put_list<double>("ra", DType::f64, words.ra);
  answer.say("unit", words.unit);
  answer.say("unread", words.unread);
}

void read_uvh5(const Json& request, Answer& answer) {
  const recipes::cosmology::SkyFile file = hdf5::File::open(request.at("path").get<std::string>());
  std::vector<Problem> problems;
  const auto header = recipes::cosmology::uvh5::read_header(file, problems);
  refuse(problems);
  std::vector<std::int64_t> pairs;
  for (const auto& [first, second] : header->rows) pairs.insert(pairs.end(), {first, second});
  answer.put_list<std::int64_t>("pairs", DType::i64, pairs);
  answer.put_list<double>("times", DType::f64, header->times);
  answer.put_list<double>("freq_hz", DType::f64, header->freq_hz);
  answer.put_list<std::int64_t>("polarisations", DType::i64, header->polarisations);
  std::vector<std::int64_t> antennas;
  std::vector<double> places;
  for (const auto& [antenna, place] : header->places) {
    antennas.push_back(antenna);
    places.insert(places.end(), place.begin(), place.end());
  }
  answer.put_list<std::int64_t>("antennas", DType::i64, antennas);
  answer.put_list<double>("places", DType::f64, places);
  answer.say("unit", header->unit);
}

void read_labels(const Json& request, Answer& answer) {
  Json names = Json::array();
  std::vector<double> scores;
  for (const auto& label : recipes::image_pairs::read_labels(request.at("path").get<std::string>())) {
    names.push_back(label.name);
    scores.push_back(label.score);
  }
  answer.say("names", names);
  answer.put_list<double>("scores", DType::f64, scores);
}

// "wanted": the model's names and shapes. What is found under them is answered, or an error where something is missing.
void read_weights(const Json& request, Answer& answer) {
  telemetry::Console console(telemetry::Console::Mode::quiet);
  Weights weights = load_weights(Fs::real(), request.at("path").get<std::string>(), console);
  Tensors& all = weights.models.at("model");
  std::map<std::string, std::vector<std::int64_t>> wanted;
  for (const auto& [name, shape] : request.at("wanted").items()) wanted[name] = shape.get<std::vector<std::int64_t>>();
  answer.say("told", pass_over_wrappers(all, wanted));
  for (const auto& [name, shape] : wanted) {
    const auto found = all.find(name);
    if (found == all.end()) throw DataError({name + " is missing", weights.path.string(), part_with(all, wanted)});
    const at::Tensor tensor = found->second.to(at::kDouble).contiguous();
    answer.put(name, DType::f64, tensor.sizes().vec(),
               std::as_bytes(std::span(tensor.const_data_ptr<double>(), static_cast<std::size_t>(tensor.numel()))));
  }
}

}  // namespace millrace::field
