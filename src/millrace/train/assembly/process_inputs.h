// What decides the numbers of a step and is not among its arguments: states of the process and of a thread, each with what sets
// it and what puts it back. A state that is not in this table must not change a bit.
//
//   state                                 set by                                          put back by
//   of the process, for a run:
//     number of ATen's threads            RunSetup (device.threads)                       ProcessInputs
//     kernels: ours or LibTorch's         Assembly::decide (kernels/operation_trial.h)               ProcessInputs
//     LibTorch's random generators        RunSetup::make_recipe; seed_draws, anew for     ProcessInputs, the host's; each run
//                                         each part of a step (step/draws.h)              seeds a GPU's anew
//     determinism, TF32, cuDNN's ways     RunSetup (train.deterministic, device.cudnn,    ProcessInputs
//                                         device.tf32), Assembly::decide
//     attention on a GPU by counter       RunSetup (train.deterministic)                  ProcessInputs
//     limits of tensors' memory           RunSetup (memory.limit)                         MemoryLimit
//     clamped values are counted          Diagnosis (log.doctor); changes no number       Diagnosis
//   of the process, for good: they say what is true of the machine, or change no number
//     guards of convolutions, attention   RunSetup (device/convolution_guard.h)
//     convolutions found wrong in bf16    Assembly::try_convolutions, load_for_inference; a run in bf16 finds the same ones
//     bytes of tensors are counted        RunSetup (device/tensor_memory.h)
//     marks of operations for a watchdog  Session (device/operation_marks.h)
//     backward passes of a replay         Stepper (memory/block.h)
//   of the loop's thread, for a part of a step: objects that put back what was there
//     keys of randomness                  Stepper::accumulate, StepTrials: RandomScope (core/random.h)
//     autocast                            Stepper::forward: device::Autocast
//     blocks, and their recompute         Stepper::forward: memory::BlockScope, through ModelBlocks
//     saved tensors on the host           Stepper::forward: memory::OffloadScope
//     gradients are recorded              whoever needs none: at::NoGradGuard
//   of the thread, for a run: its current GPU, by RunSetup (device.name); the next run sets its own
// What uses a model without a run sets some of the first group for good, for commands alone: load_for_inference, StepBench.
#pragma once

namespace millrace {

// While it lives the process may be set up for a run; after it all is as it was before. Runs one after the other in a program
// don't see each other's states. Runs at the same time share them: the first one's object saves, the last one's puts back. The
// constructor makes the choices of kernels those of a new process. Not while a step is under way; any thread.
class ProcessInputs {
 public:
  ProcessInputs();
  ~ProcessInputs();
  ProcessInputs(const ProcessInputs&) = delete;
  ProcessInputs& operator=(const ProcessInputs&) = delete;
};

}  // namespace millrace
