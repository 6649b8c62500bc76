#include "millrace/data/loader/detail/reading.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <typeinfo>

namespace millrace::data::detail {

std::string reads_of(const Source& source) {
  const char* const mangled = typeid(source).name();
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr), &std::free);
  const std::string text = name == nullptr ? "" : name.get();
  return text.empty() || text.starts_with("millrace::") ? "read() of a source" : "read() of " + text;
}

void Reading::describe(const void* call, HandlerText& text) noexcept {
  constexpr std::size_t kListed = 8;
  const Reading& reading = *static_cast<const Reading*>(call);
  text.add(reading.reads).add(reading.indices.size() == 1 ? ", sample" : ", one of the samples");
  for (std::size_t i = 0; i < std::min(reading.indices.size(), kListed); ++i)
    text.add(i == 0 ? " " : ", ").add(reading.indices[i]);
  if (reading.indices.size() > kListed) text.add(" and more");
  if (!reading.dataset.empty()) text.add(" of data set \"").add(reading.dataset).add("\"");
  text.add(", batch ").add(static_cast<std::int64_t>(reading.batch));
  text.add(" of epoch ").add(static_cast<std::int64_t>(reading.epoch));
}

}  // namespace millrace::data::detail
