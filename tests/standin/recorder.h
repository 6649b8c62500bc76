// What Backend::record() keeps: as in the capture of a CUDA graph, work that any thread launches on a recording's stream is not
// executed. Its results get memory, and each replay computes them in that memory.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "millrace/device/recording.h"
#include "streams.h"

namespace millrace::standin {

class Tape;  // recorder.cpp

// Collects the work of one open recording. Thread-safe: a backward pass launches on another thread.
class Recorder {
 public:
  explicit Recorder(int device);  // throws where another recording is open on the device
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Adds work of the thread's current stream; a replay calls it on the stream of the replay.
  void add(std::function<void()> work);
  // The work added next reads or writes this memory, which must live at each replay. An address of the host is ignored.
  void needs(const void* address);
  void made(const void* memory);  // an allocation while recording
  void draws();
  void launches(const std::string& name);  // where the account's steps end

  // Makes the recording fail at its end, whatever its work does until then.
  void fail(const std::string& reason);
  // Throws where it failed, or where a stream that it took in was not joined.
  [[nodiscard]] std::unique_ptr<Tape> finish();

  [[nodiscard]] bool has(std::size_t line);  // whether it takes in what is launched on this stream
  [[nodiscard]] c10::Stream stream() const;
  // An event that one of its streams recorded, and a stream that waits for one: the stream is then one of its own.
  void mark(Event& event, std::size_t line);
  void join(const Event& event, std::size_t line);
  [[nodiscard]] std::uint64_t number() const { return number_; }

 private:
  struct Progress {
    std::uint32_t launched = 0;
    std::uint32_t joined = 0;  // what the streams that wait for this one know of
  };

  int device_;
  std::uint64_t number_;
  std::mutex mutex_;
  std::unique_ptr<Tape> tape_;
  std::map<std::size_t, Progress> lines_;
  std::string failure_;
};

// Backend::record()
[[nodiscard]] std::unique_ptr<device::Recording> record(int device, const std::function<void()>& work);

// The open recording that takes in what this thread launches on its current stream of `device`; null: it is executed.
[[nodiscard]] Recorder* recorder(int device);
// Whether this thread is inside a recording's work, or has a recording's stream as a current one.
[[nodiscard]] bool records_here();
// Throws inside a recording, which then fails; elsewhere nothing happens.
void refuse_in_recording(const std::string& what);
// Refuses a launch inside a recording's work on a stream that the recording does not take in: a replay would leave it out.
void refuse_stray(int device, const std::string& name);

// What events do in a recording. Each refuses what CUDA refuses, and is false where no recording has to do with the event.
bool record_in_recording(Event& event, c10::Stream stream);
bool block_in_recording(const Event& event, c10::Stream stream);
void refuse_recorded(const Event& event, const std::string& what);

}  // namespace millrace::standin
