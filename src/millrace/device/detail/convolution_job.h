// The protocol between a trial of convolutions (convolution_trial.h) and the program millrace-convolutions. The job is JSON on
// the program's standard input. The program answers on standard output, one line at a time:
//   begin UNIT MILLISECONDS     the unit counts as hung after this much core time
//   right UNIT
//   wrong UNIT WHAT             WHAT is "off by 0.52 of its size", "not finite", …
//   untried UNIT WHY            no verdict
// After a pass that wrote outside its memory, the program ends with status 0, and another process tries the other units.
#pragma once

#include <string>
#include <vector>

#include "millrace/device/convolution_shape.h"

namespace millrace::device::detail {

// One pass of one shape in one layout.
struct Unit {
  ConvolutionShape shape;
  bool channels_last = false;
  Pass pass = Pass::forward;
};

struct ConvolutionJob {
  int threads = 1;
  std::vector<Unit> units;
};

[[nodiscard]] inline Json to_json(const ConvolutionJob& job) {
  Json units = Json::array();
  for (const Unit& unit : job.units) {
    Json json = device::to_json(FoundFault{unit.shape, unit.pass, ""});
    json["channels_last"] = unit.channels_last;
    units.push_back(std::move(json));
  }
  return {{"threads", job.threads}, {"units", std::move(units)}};
}

// Reads a job. Throws Json's exceptions and std::exception.
[[nodiscard]] inline ConvolutionJob job_in(const Json& json) {
  ConvolutionJob job{json.at("threads").get<int>(), {}};
  for (const Json& unit : json.at("units")) {
    FoundFault named = found_fault_in(unit);
    job.units.push_back({std::move(named.shape), unit.at("channels_last").get<bool>(), named.pass});
  }
  return job;
}

}  // namespace millrace::device::detail
