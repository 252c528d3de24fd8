// Single instructions as what the device knows (commands.cc); schedule.cc puts them together.
#pragma once

#include "backends/cuda/schedule.h"

namespace continuo::cuda {

Command command_of(const Model& model, const Program& program, const Instruction& instruction, Addresses& addresses,
                   Schedule& schedule);
// Sums of what the gates of a memory were.
Command gates_of(const Command& memory, Schedule& schedule);
Product product_of(const Model& model, const Instruction& instruction, Addresses& addresses);
Task epilogue_task_of(Op op);

}  // namespace continuo::cuda
