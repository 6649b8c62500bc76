// The probe's answer for one file: arrays by name, whose bytes go to a file of all answers, and words in addition.
#pragma once

#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "millrace/base/field.h"
#include "millrace/base/json.h"

namespace millrace::field {

class Answer {
 public:
  // `raw` must outlive the answer.
  explicit Answer(std::ofstream& raw) : raw_(raw) {}

  // Row-major bytes in this machine's byte order.
  void put(const std::string& name, DType dtype, const Shape& shape, std::span<const std::byte> bytes) {
    json_["arrays"].push_back({{"name", name},
                               {"dtype", name_of(dtype)},
                               {"shape", shape},
                               {"at", static_cast<std::int64_t>(raw_.tellp())},
                               {"bytes", bytes.size()}});
    raw_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  template <class Number>
  void put_list(const std::string& name, DType dtype, std::span<const Number> values) {
    put(name, dtype, {static_cast<std::int64_t>(values.size())}, std::as_bytes(values));
  }
  void say(const std::string& name, Json value) { json_["words"][name] = std::move(value); }
  [[nodiscard]] Json& json() noexcept { return json_; }

 private:
  std::ofstream& raw_;
  Json json_ = {{"arrays", Json::array()}, {"words", Json::object()}};
};

// Each function reads the file at "path" of a request. A fault of the file throws an Error.
void read_sky(const Json& request, Answer& answer);
void read_uvh5(const Json& request, Answer& answer);
void read_labels(const Json& request, Answer& answer);
void read_weights(const Json& request, Answer& answer);

}  // namespace millrace::field
