// Who else wants to know of spans: a profile of some steps.
#pragma once

#include "millrace/telemetry/spans.h"

namespace millrace::telemetry {

// Called in the thread of the spans. Ends come in the reverse order of begins; the first may be of spans that began before the
// watch.
class SpanWatch {
 public:
  virtual ~SpanWatch() = default;
  virtual void begins(Phase phase) noexcept = 0;
  virtual void ends() noexcept = 0;
};

// Of the calling thread's spans from here on; null = nobody, which costs a span two looks at a pointer. `watch` outlives that.
void watch_spans(SpanWatch* watch) noexcept;

}  // namespace millrace::telemetry
