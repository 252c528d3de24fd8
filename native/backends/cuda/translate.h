// Translates single instructions into commands and products (commands.cc); schedule.cc combines them into launches.
#pragma once

#include "backends/cuda/schedule.h"

namespace continuo::cuda {

Command command_of(const Model& model, const Program& program, const Instruction& instruction, Addresses& addresses,
                   Schedule& schedule);
// Whether the host runs the op: it moves counters, brings back first values, or is control flow.
bool on_host(Op op);
// Whether the op deals with the experts of a store: the host must know the routes of the rows.
bool of_store(Op op);
// The command that sums the gates of a memory.
Command gates_of(const Command& memory, Schedule& schedule);
// A product with a packed matrix, without rows.
Product product_of(const PackedMatrix& w);
Product product_of(const Model& model, const Instruction& instruction, Addresses& addresses);
Routed routed_of(const Model& model, const Program& program, const Instruction& instruction, Addresses& addresses);
Task epilogue_task_of(Op op);

}  // namespace continuo::cuda
