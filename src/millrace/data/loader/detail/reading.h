// A call of Source::read, for the report of a crash during the call.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "millrace/data/loader/source.h"
#include "millrace/system/foreign_call.h"

namespace millrace::data::detail {

// Returns "read() of mine::Sky", with the class of the source; "read() of a source" if the class is Millrace's.
[[nodiscard]] std::string reads_of(const Source& source);

struct Reading {
  const std::string& reads;    // the text that reads_of() gives for the source
  const std::string& dataset;  // name of the data set
  std::span<const std::int64_t> indices;
  std::uint64_t batch, epoch;

  // Adds "read() of mine::Sky, sample 31 of data set "x", batch 3 of epoch 0" to `text`.
  static void describe(const void* call, HandlerText& text) noexcept;
};

}  // namespace millrace::data::detail
