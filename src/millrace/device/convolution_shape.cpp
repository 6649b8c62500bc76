#include "millrace/device/convolution_shape.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace millrace::device {
namespace {

using Sizes = std::vector<std::int64_t>;

constexpr std::array<std::string_view, 3> kPasses = {"output", "input gradient", "weight gradient"};

std::string to_text(const Sizes& sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "[" : ", ") + std::to_string(size);
  return text + "]";
}

bool are_all(const Sizes& sizes, std::int64_t value) {
  return std::ranges::all_of(sizes, [value](std::int64_t size) { return size == value; });
}

}  // namespace

ConvolutionShape shape_of(const ConvolutionCall& call) {
  const auto each = [&](at::IntArrayRef values) {  // ATen accepts one value for all directions
    return values.size() == 1 ? Sizes(call.input.size() - 2, values[0]) : values.vec();
  };
  return {call.transposed,    call.input.vec(),    call.weight.vec(),         each(call.stride),
          each(call.padding), each(call.dilation), each(call.output_padding), call.groups};
}

bool is_alike(const ConvolutionShape& shape, const ConvolutionCall& call) {
  if (shape.input.size() != call.input.size() || !std::ranges::equal(shape.weight, call.weight)) return false;
  ConvolutionShape other = shape_of(call);
  other.input[0] = shape.input[0];
  return shape == other;
}

std::string to_text(const ConvolutionShape& shape) {
  std::string text = (shape.transposed ? "transposed " : "") + to_text(shape.input) + " x " + to_text(shape.weight);
  if (!are_all(shape.stride, 1)) text += ", stride " + to_text(shape.stride);
  if (!are_all(shape.padding, 0)) text += ", padding " + to_text(shape.padding);
  if (!are_all(shape.dilation, 1)) text += ", dilation " + to_text(shape.dilation);
  if (!are_all(shape.output_padding, 0)) text += ", output padding " + to_text(shape.output_padding);
  if (shape.groups != 1) text += ", " + std::to_string(shape.groups) + " groups";
  return text;
}

Json to_json(const ConvolutionShape& shape) {
  return {{"transposed", shape.transposed}, {"input", shape.input},
          {"weight", shape.weight},         {"stride", shape.stride},
          {"padding", shape.padding},       {"dilation", shape.dilation},
          {"groups", shape.groups},         {"output_padding", shape.output_padding}};
}

ConvolutionShape convolution_shape_in(const Json& json) {
  return {json.at("transposed").get<bool>(),      json.at("input").get<Sizes>(),        json.at("weight").get<Sizes>(),
          json.at("stride").get<Sizes>(),         json.at("padding").get<Sizes>(),      json.at("dilation").get<Sizes>(),
          json.at("output_padding").get<Sizes>(), json.at("groups").get<std::int64_t>()};
}

std::string_view name_of(Pass pass) noexcept { return kPasses[static_cast<std::size_t>(pass)]; }

Json to_json(const FoundFault& fault) {
  return {{"shape", to_json(fault.shape)}, {"pass", static_cast<int>(fault.pass)}, {"what", fault.what}};
}

FoundFault found_fault_in(const Json& json) {
  const int pass = json.at("pass").get<int>();
  if (pass < 0 || pass >= static_cast<int>(kPasses.size())) throw std::out_of_range("no such pass");
  return {convolution_shape_in(json.at("shape")), static_cast<Pass>(pass), json.at("what").get<std::string>()};
}

}  // namespace millrace::device
