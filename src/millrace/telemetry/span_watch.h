// An observer of spans, such as a profile of some steps.
#pragma once

#include "millrace/telemetry/spans.h"

namespace millrace::telemetry {

// The spans' thread calls these functions. Ends come in the reverse order of begins; the first ends may belong to spans that
// began before the watch.
class SpanWatch {
 public:
  virtual ~SpanWatch() = default;
  virtual void begins(Phase phase) noexcept = 0;
  virtual void ends() noexcept = 0;
};

// After this call `watch` observes the calling thread's spans; `watch` must outlive these spans. Null removes the observer;
// without one a span costs two pointer checks.
void watch_spans(SpanWatch* watch) noexcept;

}  // namespace millrace::telemetry
