// States of the process and of a thread that influence the numbers of a step but are not its arguments. The table says what sets
// each state and what restores it. A state that is not in the table must not change a bit.
//
//   state                                 set by                                          put back by
//   of the process, for a run:
//     number of ATen's threads            RunSetup (device.threads)                       ProcessInputs
//     kernels: ours or LibTorch's         Assembly::decide (kernels/operation_trial.h)    ProcessInputs
//     LibTorch's random generators        RunSetup::make_recipe; seed_draws, anew for     ProcessInputs, the host's; each run
//                                         each part of a step (step/draws.h)              seeds a GPU's anew
//     determinism, TF32, cuDNN's modes    RunSetup (train.deterministic, device.cudnn,    ProcessInputs
//                                         device.tf32), Assembly::decide
//     attention on a GPU by counter       RunSetup (train.deterministic)                  ProcessInputs
//     limits of tensors' memory           RunSetup (memory.limit)                         MemoryLimit
//     clamped values are counted          Diagnosis (log.doctor); changes no number       Diagnosis
//   of the process, for good: they describe the machine, or change no number
//     guards of convolutions, attention   RunSetup (device/convolution_guard.h)
//     convolutions found wrong in bf16    Assembly::try_convolutions, load_for_inference; a run in bf16 finds the same ones
//     bytes of tensors are counted        RunSetup (device/tensor_memory.h)
//     marks of operations for a watchdog  Session (device/operation_marks.h)
//     backward passes of a replay         Stepper (memory/block.h)
//   of the loop's thread, for a part of a step: objects that restore the previous state
//     keys of randomness                  Stepper::accumulate, StepTrials: RandomScope (core/random.h)
//     autocast                            Stepper::forward: device::Autocast
//     blocks, and their recompute         Stepper::forward: memory::BlockScope, through ModelBlocks
//     saved tensors on the host           Stepper::forward: memory::OffloadScope
//     gradients are recorded              callers without gradients: at::NoGradGuard
//   of the thread, for a run: its current GPU, by RunSetup (device.name); the next run sets its own
// Commands that use a model without a run set some of the first group for good: load_for_inference, StepBench.
#pragma once

namespace millrace {

// While an object of this class exists, the process may be set up for a run. The destructor restores all states, so that
// consecutive runs of a program don't see each other's states. Simultaneous runs share the states: the first object saves them,
// the last one restores them. The constructor resets the choices of kernels to the defaults of a new process. Thread-safe, but an
// object must not be made or destroyed while a step is under way.
class ProcessInputs {
 public:
  ProcessInputs();
  ~ProcessInputs();
  ProcessInputs(const ProcessInputs&) = delete;
  ProcessInputs& operator=(const ProcessInputs&) = delete;
};

}  // namespace millrace
