#include "millrace/doctor/evidence_json.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace::doctor {
namespace {

template <class T, class U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

// The members of each struct, in one list for reading and writing.
void members(Is<Evidence::Input::Slow> auto& x, auto& visit) {
  visit("file", x.file);
  visit("excess_seconds", x.excess_seconds);
  visit("times", x.times);
  visit("quick", x.quick);
  visit("sample", x.sample);
  visit("sample_times", x.sample_times);
}

void members(Is<Evidence::Input> auto& x, auto& visit) {
  visit("readers", x.readers);
  visit("readers_by_user", x.readers_by_user);
  visit("read_seconds", x.read_seconds);
  visit("read_cpu_seconds", x.read_cpu_seconds);
  visit("cache_by_user", x.cache_by_user);
  visit("cached", x.cached);
  visit("cacheable_bytes", x.cacheable_bytes);
  visit("free_bytes", x.free_bytes);
  visit("epochs", x.epochs);
  visit("bad_samples", x.bad_samples);
  visit("good_samples", x.good_samples);
  visit("slow", x.slow);
}

void members(Is<Evidence::Often> auto& x, auto& visit) {
  visit("count", x.count);
  visit("every_steps", x.every_steps);
  visit("every_epochs", x.every_epochs);
}

void members(Is<Evidence::Experiments::Threads> auto& x, auto& visit) {
  visit("asked", x.asked);
  visit("cores", x.cores);
  visit("ratio", x.ratio);
}

void members(Is<Evidence::Experiments::Batch> auto& x, auto& visit) {
  visit("rows", x.rows);
  visit("fixed_share", x.fixed_share);
  visit("batch_size", x.batch_size);
  visit("micro_batches", x.micro_batches);
  visit("accumulate", x.accumulate);
}

template <class T>
concept FromTo = Is<T, Evidence::Experiments::Format> || Is<T, Evidence::Experiments::Layouts>;
void members(FromTo auto& x, auto& visit) {
  visit("from", x.from);
  visit("to", x.to);
  visit("ratio", x.ratio);
}

void members(Is<Evidence::Experiments::Recompute> auto& x, auto& visit) {
  visit("saved_bytes", x.saved_bytes);
  visit("seconds", x.seconds);
}

void members(Is<Evidence::Experiments> auto& x, auto& visit) {
  visit("format", x.format);
  visit("threads", x.threads);
  visit("batch", x.batch);
  visit("layout", x.layout);
  visit("recompute", x.recompute);
}

void members(Is<Evidence::Census> auto& x, auto& visit) {
  visit("operations", x.operations);
  visit("host_reads", x.host_reads);
  visit("seconds", x.seconds);
  visit("rebuilt_seconds", x.rebuilt_seconds);
  visit("rebuilt_by", x.rebuilt_by);
  visit("copies", x.copies);
  visit("copied_seconds", x.copied_seconds);
  visit("copied_by", x.copied_by);
}

void members(Is<Evidence::Shapes> auto& x, auto& visit) {
  visit("batches", x.batches);
  visit("fresh", x.fresh);
  visit("all", x.all);
  visit("latest", x.latest);
}

void members(Is<Evidence::RankTimes> auto& x, auto& visit) {
  visit("reduction", x.reduction);
  visit("data_wait", x.data_wait);
}

void members(Is<Evidence::Memory> auto& x, auto& visit) {
  visit("used", x.used);
  visit("room", x.room);
  visit("rising", x.rising);
  visit("recompute_seconds", x.recompute_seconds);
  visit("recompute_by_user", x.recompute_by_user);
  visit("step_peak", x.step_peak);
  visit("most_held", x.most_held);
}

void members(Is<Evidence::Judged> auto& x, auto& visit) {
  visit("unit", x.unit);
  visit("by", x.by);
  visit("there_are", x.there_are);
  visit("batches", x.batches);
  visit("most_batches", x.most_batches);
}

void members(Is<Evidence::SkippedInput> auto& x, auto& visit) {
  visit("all", x.all);
  visit("samples", x.samples);
  visit("first", x.first);
}

void members(Is<Evidence::Blind> auto& x, auto& visit) {
  visit("loss", x.loss);
  visit("what", x.what);
}

void members(Is<Evidence::Clamp> auto& x, auto& visit) {
  visit("name", x.name);
  visit("low", x.low);
  visit("high", x.high);
  visit("values", x.values);
  visit("at_border", x.at_border);
}

void members(Is<Evidence::LossLine> auto& x, auto& visit) {
  visit("step", x.step);
  visit("loss", x.loss);
  visit("gradient_norm", x.gradient_norm);
}

void members(Is<Evidence::ObjectiveLines> auto& x, auto& visit) {
  visit("name", x.name);
  visit("lines", x.lines);
  visit("clips", x.clips);
}

void members(Is<Evidence::Numbers> auto& x, auto& visit) {
  visit("objectives", x.objectives);
  visit("skipped", x.skipped);
  visit("input", x.input);
  visit("spikes", x.spikes);
  visit("scaled", x.scaled);
  visit("has_bf16", x.has_bf16);
  visit("blind", x.blind);
  visit("validation", x.validation);
  visit("judged", x.judged);
  visit("clamps", x.clamps);
  visit("stops_early", x.stops_early);
}

void members(Is<Evidence::Target> auto& x, auto& visit) {
  visit("key", x.key);
  visit("what", x.what);
  visit("unit", x.unit);
  visit("asked", x.asked);
  visit("measured", x.measured);
  visit("at_most", x.at_most);
}

void members(Is<Evidence::Gpu> auto& x, auto& visit) {
  visit("utilisation", x.utilisation);
  visit("mhz", x.mhz);
  visit("most_mhz", x.most_mhz);
  visit("held_back", x.held_back);
}

void members(Is<Evidence::Launches> auto& x, auto& visit) {
  visit("host_ms", x.host_ms);
  visit("device_ms", x.device_ms);
  visit("behind_ms", x.behind_ms);
}

void members(Is<Evidence::CpuClock> auto& x, auto& visit) {
  visit("before_mhz", x.before_mhz);
  visit("now_mhz", x.now_mhz);
  visit("lost", x.lost);
}

void members(Is<Evidence::Earlier> auto& x, auto& visit) {
  visit("step_ms", x.step_ms);
  visit("newest", x.newest);
}

void members(Is<telemetry::Timeline::Summary> auto& x, auto& visit) {
  visit("steps", x.steps);
  visit("step_ms_p50", x.step_ms_p50);
  visit("step_ms_p95", x.step_ms_p95);
  visit("step_seconds", x.step_seconds);
  visit("wall", x.wall);
  visit("seconds", x.seconds);
}

void members(Is<Script::Loader> auto& x, auto& visit) {
  visit("workers", x.workers);
  visit("prefetch", x.prefetch);
  visit("persistent", x.persistent);
  visit("pinned", x.pinned);
  visit("batch_size", x.batch_size);
  visit("where", x.where);
  visit("dataset", x.dataset);
  visit("epochs", x.epochs);
  visit("first_batch_seconds", x.first_batch_seconds);
  visit("usual_batch_seconds", x.usual_batch_seconds);
  visit("slow_start_seconds", x.slow_start_seconds);
  visit("worker_threads", x.worker_threads);
  visit("worker_tasks", x.worker_tasks);
  visit("multiprocessing", x.multiprocessing);
  visit("sample_seconds", x.sample_seconds);
  visit("sample_cpu_seconds", x.sample_cpu_seconds);
  visit("slowest_index", x.slowest_index);
  visit("slowest_seconds", x.slowest_seconds);
}

void members(Is<Script::ValidationInput> auto& x, auto& visit) {
  visit("workers", x.workers);
  visit("wait_seconds", x.wait_seconds);
  visit("read_seconds", x.read_seconds);
  visit("read_cpu_seconds", x.read_cpu_seconds);
  visit("where", x.where);
}

void members(Is<Script::Faults> auto& x, auto& visit) {
  visit("minor_per_step", x.minor_per_step);
  visit("system_cpu_share", x.system_cpu_share);
  visit("below_headrace_run", x.below_headrace_run);
}

void members(Is<Script::ItemCalls> auto& x, auto& visit) {
  visit("count", x.count);
  visit("seconds", x.seconds);
  visit("where", x.where);
  visit("line", x.line);
}

void members(Is<Script::PythonLooks> auto& x, auto& visit) {
  visit("gil_share", x.gil_share);
  visit("samples", x.samples);
  visit("where", x.where);
  visit("where_share", x.where_share);
}

void members(Is<Script::KeptGraphs> auto& x, auto& visit) {
  visit("growth_bytes_per_step", x.growth_bytes_per_step);
  visit("list", x.list);
  visit("where", x.where);
  visit("line", x.line);
}

void members(Is<Script::Deed> auto& x, auto& visit) {
  visit("count", x.count);
  visit("seconds", x.seconds);
  visit("where", x.where);
  visit("every_steps", x.every_steps);
}

void members(Is<Script> auto& x, auto& visit) {
  visit("path", x.path);
  visit("command", x.command);
  visit("dialect", x.dialect);
  visit("threads", x.threads);
  visit("loader", x.loader);
  visit("validation_input", x.validation_input);
  visit("faults", x.faults);
  visit("item_calls", x.item_calls);
  visit("python", x.python);
  visit("kept_graphs", x.kept_graphs);
  visit("saves", x.saves);
  visit("logs", x.logs);
  visit("validations", x.validations);
}

void members(Is<Evidence> auto& x, auto& visit) {
  visit("step", x.step);
  visit("times", x.times);
  visit("run_seconds", x.run_seconds);
  visit("work_cpu_seconds", x.work_cpu_seconds);
  visit("core_wait_seconds", x.core_wait_seconds);
  visit("others", x.others);
  visit("cores", x.cores);
  visit("on_gpu", x.on_gpu);
  visit("gpu", x.gpu);
  visit("launches", x.launches);
  visit("clock", x.clock);
  visit("input", x.input);
  visit("copied_floats", x.copied_floats);
  visit("log", x.log);
  visit("snapshot", x.snapshot);
  visit("validation", x.validation);
  visit("memory", x.memory);
  visit("numbers", x.numbers);
  visit("experiments", x.experiments);
  visit("census", x.census);
  visit("targets", x.targets);
  visit("shapes", x.shapes);
  visit("ranks", x.ranks);
  visit("step_ms", x.step_ms);
  visit("earlier", x.earlier);
  visit("run", x.run);
  visit("script", x.script);
}

// --- writing

Json json_of(const std::string& text) { return text; }
Json json_of(bool value) { return value; }
Json json_of(std::integral auto value) { return value; }
Json json_of(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}
Json json_of(Dialect dialect) { return kDialects[static_cast<std::size_t>(dialect)]; }
Json json_of(const std::array<double, telemetry::kPhases>& seconds) {
  Json json = Json::object();
  for (std::size_t i = 0; i < seconds.size(); ++i)
    json[std::string(name_of(static_cast<telemetry::Phase>(i)))] = json_of(seconds[i]);
  return json;
}
template <class T>
Json json_of(const std::vector<T>& all);
Json json_of(const auto& object) requires std::is_class_v<std::remove_cvref_t<decltype(object)>>;

struct Writer {
  Json json = Json::object();
  void operator()(const char* name, const auto& value) { json[name] = json_of(value); }
  template <class T>
  void operator()(const char* name, const std::optional<T>& value) {
    if (value) json[name] = json_of(*value);
  }
};

template <class T>
Json json_of(const std::vector<T>& all) {
  Json json = Json::array();
  for (const T& each : all) json.push_back(json_of(each));
  return json;
}
Json json_of(const auto& object) requires std::is_class_v<std::remove_cvref_t<decltype(object)>> {
  Writer writer;
  members(object, writer);
  return std::move(writer.json);
}

// --- reading

std::string place_of(const std::string& where, std::string_view name) {
  std::string place = where;
  place += '.';
  place += name;
  return place;
}

[[noreturn]] void refuse(std::string what, const std::string& where, std::string next) {
  throw ConfigError(Message{.what = std::move(what), .where = where, .next = std::move(next)});
}

std::string text_of(const Json& json) {
  constexpr std::size_t kMost = 60;
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= kMost ? text : text.substr(0, kMost) + " ...";
}

[[noreturn]] void wrong(const Json& json, const std::string& where, const std::string& expected) {
  refuse(text_of(json) + " is not " + expected, where, "write " + expected + ", or leave it out");
}

void refuse_unknown(const std::string& name, const std::string& where, const std::vector<std::string>& known) {
  const std::string near = nearest(name, known.data(), known.data() + known.size());
  refuse("there is no " + name + " in " + where, place_of(where, name),
         near.empty() ? "it has " + joined(known, ", ") : "did you mean " + near + "?");
}

void read(const Json& json, std::string& to, const std::string& where) {
  if (!json.is_string()) wrong(json, where, "a text");
  to = json.get<std::string>();
}

void read(const Json& json, bool& to, const std::string& where) {
  if (!json.is_boolean()) wrong(json, where, "true or false");
  to = json.get<bool>();
}

template <std::integral T>
void read(const Json& json, T& to, const std::string& where) {
  if (!json.is_number_integer()) wrong(json, where, "a whole number");
  const bool fits =
      json.is_number_unsigned() ? std::in_range<T>(json.get<std::uint64_t>()) : std::in_range<T>(json.get<std::int64_t>());
  const std::string of_its_size = "a whole number of at most " + std::to_string(8 * sizeof(T)) + " bits";
  if (!fits) wrong(json, where, std::is_unsigned_v<T> ? "a whole number from 0 on" : of_its_size);
  to = json.get<T>();
}

void read(const Json& json, double& to, const std::string& where) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (json.is_number())
    to = json.get<double>();
  else if (json == "nan")
    to = std::numeric_limits<double>::quiet_NaN();
  else if (json == "inf" || json == "-inf")
    to = json == "inf" ? kInfinity : -kInfinity;
  else
    wrong(json, where, R"(a number, or "nan", "inf", "-inf")");
}

void read(const Json& json, Dialect& to, const std::string& where) {
  const auto found = std::ranges::find(kDialects, json.is_string() ? json.get<std::string>() : "");
  if (found == kDialects.end()) wrong(json, where, "a dialect: " + joined(kDialects, ", "));
  to = static_cast<Dialect>(found - kDialects.begin());
}

void read(const Json& json, std::array<double, telemetry::kPhases>& to, const std::string& where) {
  if (!json.is_object()) wrong(json, where, "an object with the seconds of each account");
  std::vector<std::string> names;
  for (std::size_t i = 0; i < to.size(); ++i) names.emplace_back(name_of(static_cast<telemetry::Phase>(i)));
  for (const auto& [name, value] : json.items()) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) refuse_unknown(name, where, names);
    read(value, to[static_cast<std::size_t>(found - names.begin())], place_of(where, name));
  }
}

template <class T>
void read(const Json& json, std::vector<T>& to, const std::string& where);
template <class T>
requires std::is_class_v<T>
void read(const Json& json, T& to, const std::string& where);

struct Reader {
  const Json& json;
  const std::string& where;
  std::vector<std::string> known = {};
  void operator()(const char* name, auto& value) {
    known.emplace_back(name);
    if (const auto found = json.find(name); found != json.end()) read(*found, value, place_of(where, name));
  }
  template <class T>
  void operator()(const char* name, std::optional<T>& value) {
    known.emplace_back(name);
    if (const auto found = json.find(name); found != json.end() && !found->is_null()) {
      T made{};
      read(*found, made, place_of(where, name));
      value = std::move(made);
    }
  }
};

template <class T>
void read(const Json& json, std::vector<T>& to, const std::string& where) {
  if (!json.is_array()) wrong(json, where, "a list");
  to.clear();
  for (const Json& each : json) {
    const std::string place = where + "[" + std::to_string(to.size()) + "]";
    read(each, to.emplace_back(), place);
  }
}

template <class T>
requires std::is_class_v<T>
void read(const Json& json, T& to, const std::string& where) {
  if (!json.is_object()) wrong(json, where, "an object");
  if constexpr (std::same_as<T, Evidence::LossLine>) to.gradient_norm = std::numeric_limits<double>::quiet_NaN();
  Reader reader{json, where};
  members(to, reader);
  for (const auto& [name, value] : json.items()) {
    if (std::ranges::find(reader.known, name) == reader.known.end()) refuse_unknown(name, where, reader.known);
  }
}

}  // namespace

Json to_json(const Evidence& evidence) { return json_of(evidence); }

Evidence evidence_from(const Json& json) {
  Evidence evidence;
  read(json, evidence, "evidence");
  if (evidence.cores < 1) refuse("there are no cores", "evidence.cores", "give the number of cores that the script may use");
  return evidence;
}

}  // namespace millrace::doctor
