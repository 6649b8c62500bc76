#include "millrace/train/watch/detail/profile_table.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "millrace/base/format.h"

namespace millrace {
namespace {

struct Event {
  std::string name, shapes;
  std::int64_t thread = 0;
  double begin_us = 0, took_us = 0;
};

struct Trace {
  std::vector<Event> operations, device;
  std::int64_t steps = 0;
  double steps_us = 0;
};

// Reads only the parts of a trace that are needed, because a trace is large.
Json read_needed(std::string_view text) {
  static constexpr std::array<std::string_view, 8> kKeys = {"traceEvents", "ph", "cat", "name", "tid", "ts", "dur", "args"};
  const auto keep = [](int, Json::parse_event_t event, Json& value) {
    if (event != Json::parse_event_t::key) return true;
    const auto& key = value.get_ref<const std::string&>();
    return key == "Input Dims" || std::ranges::find(kKeys, key) != kKeys.end();
  };
  return Json::parse(text, keep);
}

bool is_device_work(const std::string& category) {
  return category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset";
}

Trace read(std::string_view text) {
  const Json json = read_needed(text);
  Trace trace;
  for (const Json& each : json.at("traceEvents")) {
    if (each.value("ph", "") != "X") continue;
    const std::string category = each.value("cat", "");
    const bool on_host = category == "cpu_op";
    const double took = each.value("dur", 0.0);
    if (category == "user_annotation" && each.at("name").get_ref<const std::string&>().starts_with("ProfilerStep#")) {
      ++trace.steps;
      trace.steps_us += took;
    }
    if (!on_host && !is_device_work(category)) continue;
    Event event{.name = each.at("name").get<std::string>(),
                .shapes = "",
                .thread = on_host ? each.at("tid").get<std::int64_t>() : 0,
                .begin_us = each.at("ts").get<double>(),
                .took_us = took};
    if (const auto args = each.find("args"); args != each.end() && args->contains("Input Dims"))
      event.shapes = (*args)["Input Dims"].dump();
    (on_host ? trace.operations : trace.device).push_back(std::move(event));
  }
  return trace;
}

using Rows = std::map<std::pair<std::string, std::string>, ProfileRow>;

ProfileRow& row_of(Rows& rows, const Event& event) {
  ProfileRow& row = rows[{event.name, event.shapes}];
  row.name = event.name;
  row.shapes = event.shapes;
  return row;
}

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

// Sorts the events so that outer ones come first. Returns for each event the index of the event that directly contains it.
std::vector<std::size_t> parents_of(std::vector<Event>& events) {
  std::ranges::stable_sort(events, [](const Event& a, const Event& b) {
    return std::tuple(a.thread, a.begin_us, -a.took_us) < std::tuple(b.thread, b.begin_us, -b.took_us);
  });
  std::vector<std::size_t> parents(events.size(), kNone);
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const auto is_over = [&](const Event& event) {
      return event.thread != events[i].thread || event.begin_us + event.took_us <= events[i].begin_us;
    };
    while (!open.empty() && is_over(events[open.back()])) open.pop_back();
    if (!open.empty()) parents[i] = open.back();
    open.push_back(i);
  }
  return parents;
}

// Makes a row for each operation. The self time of an operation excludes the operations directly inside it. If an operation has
// a single child of the same name, as after autocast, the two count as one.
Rows host_rows(std::vector<Event>& events) {
  const std::vector<std::size_t> parents = parents_of(events);
  std::vector<int> children(events.size(), 0);
  for (const std::size_t parent : parents) {
    if (parent != kNone) ++children[parent];
  }
  Rows rows;
  std::vector<ProfileRow*> row_of_event(events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    const std::size_t parent = parents[i];
    const double ms = events[i].took_us * 1e-3;
    const bool is_parent = parent != kNone && children[parent] == 1 && events[parent].name == events[i].name;
    ProfileRow& row = is_parent ? *row_of_event[parent] : row_of(rows, events[i]);
    row_of_event[i] = &row;
    row.self_ms += ms;
    if (parent != kNone) row_of_event[parent]->self_ms -= ms;
    if (is_parent) continue;
    ++row.calls;
    row.total_ms += ms;
  }
  return rows;
}

Rows device_rows(const std::vector<Event>& events) {
  Rows rows;
  for (const Event& event : events) {
    ProfileRow& row = row_of(rows, event);
    ++row.calls;
    row.total_ms = row.self_ms += event.took_us * 1e-3;
  }
  return rows;
}

double sum_of(const Rows& rows) {
  double sum = 0;
  for (const auto& [key, row] : rows) sum += row.self_ms;
  return sum;
}

std::vector<ProfileRow> longest_of(Rows rows, std::size_t most) {
  std::vector<ProfileRow> list;
  list.reserve(rows.size());
  for (auto& [key, row] : rows) list.push_back(std::move(row));
  std::ranges::stable_sort(list, [](const ProfileRow& a, const ProfileRow& b) { return a.self_ms > b.self_ms; });
  list.resize(std::min(list.size(), most));
  return list;
}

// Turns "[[64,300],[],[300,300]]" into "[64,300] [300,300]": scalars are left out.
std::string shown_shapes(const std::string& shapes) {
  constexpr std::size_t kMost = 60;
  const Json all = shapes.empty() ? Json::array() : Json::parse(shapes);
  std::string text;
  for (const Json& each : all) {
    if (each.empty()) continue;
    const std::string shape = each.dump();
    if (!text.empty() && text.size() + shape.size() > kMost) return text + " ...";
    text += (text.empty() ? "" : " ") + (shape.size() > kMost ? shape.substr(0, kMost) + "..." : shape);
  }
  return text;
}

using Line = std::array<std::string, 6>;

std::string in_columns(const std::vector<Line>& lines) {
  std::array<std::size_t, 6> width{};
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) width[i] = std::max(width[i], line[i].size());
  }
  std::string text;
  for (const Line& line : lines) {
    text += "\n" + line[0] + std::string(width[0] - line[0].size(), ' ');
    for (std::size_t i = 1; i + 1 < line.size(); ++i) text += "  " + std::string(width[i] - line[i].size(), ' ') + line[i];
    if (!line.back().empty()) text += "  " + line.back();
  }
  return text;
}

std::string rows_text(const std::vector<ProfileRow>& rows, const char* what, double steps_ms) {
  std::vector<Line> lines = {{what, "calls", "total ms", "self ms", "share", "shapes of the inputs"}};
  for (const ProfileRow& row : rows) {
    lines.push_back({short_name(row.name), with_commas(row.calls), fixed(row.total_ms, 2), fixed(row.self_ms, 2),
                     percent(steps_ms > 0 ? row.self_ms / steps_ms : 0.0), shown_shapes(row.shapes)});
  }
  return in_columns(lines);
}

Json rows_json(const std::vector<ProfileRow>& rows) {
  Json list = Json::array();
  for (const ProfileRow& row : rows) {
    list.push_back({{"name", row.name},
                    {"shapes", row.shapes.empty() ? Json() : Json::parse(row.shapes)},
                    {"calls", row.calls},
                    {"total_ms", row.total_ms},
                    {"self_ms", row.self_ms}});
  }
  return list;
}

}  // namespace

ProfileTable table_of_trace(std::string_view trace, std::size_t rows) {
  Trace read_trace = read(trace);
  Rows host = host_rows(read_trace.operations);
  Rows device = device_rows(read_trace.device);
  ProfileTable table{.steps = read_trace.steps,
                     .steps_ms = read_trace.steps_us * 1e-3,
                     .operations = static_cast<std::int64_t>(read_trace.operations.size()),
                     .device_work = static_cast<std::int64_t>(read_trace.device.size()),
                     .operations_ms = sum_of(host),
                     .device_ms = sum_of(device)};
  table.longest = longest_of(std::move(host), rows);
  table.device = longest_of(std::move(device), rows);
  return table;
}

std::string short_name(std::string_view name) {
  constexpr std::string_view kNode = "torch::autograd::CppNode<";
  constexpr std::string_view kEngine = "autograd::engine::evaluate_function: ";
  const bool of_engine = name.starts_with(kEngine);
  std::string_view inner = of_engine ? name.substr(kEngine.size()) : name;
  if (inner.starts_with(kNode) && inner.ends_with('>')) {
    inner = inner.substr(kNode.size(), inner.size() - kNode.size() - 1);
    if (const std::size_t colons = inner.rfind("::"); colons != std::string_view::npos) inner = inner.substr(colons + 2);
    return std::string(inner) + (of_engine ? ", backward and sums of gradients" : ", backward");
  }
  return of_engine ? std::string(inner) + " and sums of gradients" : std::string(name);
}

std::string to_text(const ProfileTable& table) {
  const double each = table.steps > 0 ? table.steps_ms / static_cast<double>(table.steps) : 0.0;
  std::string text = std::to_string(table.steps) + (table.steps == 1 ? " step of " : " steps of ") + fixed(each, 2) +
                     " ms each with the recording; " + with_commas(table.operations) + " operations, " +
                     percent(table.steps_ms > 0 ? table.operations_ms / table.steps_ms : 0.0) + " of the time";
  text += rows_text(table.longest, "operation", table.steps_ms);
  if (table.device.empty()) return text;
  text += "\non the GPU: " + with_commas(table.device_work) + " kernels and copies, " + fixed(table.device_ms, 2) + " ms";
  return text + rows_text(table.device, "kernel", table.steps_ms);
}

Json to_json(const ProfileTable& table) {
  return {{"steps", table.steps},
          {"steps_ms", table.steps_ms},
          {"operations", table.operations},
          {"operations_ms", table.operations_ms},
          {"longest", rows_json(table.longest)},
          {"device_work", table.device_work},
          {"device_ms", table.device_ms},
          {"device", rows_json(table.device)}};
}

}  // namespace millrace
