// CudaExecutor: the arguments of a step, and what commands note at the places of their arguments.
#include <algorithm>
#include <cstring>

#include "backends/cuda/executor.h"

namespace continuo::cuda {

CudaExecutor::StepArgs CudaExecutor::args_for(const Schedule& schedule, size_t rows, std::span<const Run> runs) {
  const size_t count = args_in(rows, runs.size(), schedule.run_args, schedule.row_args);
  auto* host = reinterpret_cast<uint64_t*>(room(host_args_, args_.size()));
  std::memset(host, 0, count * sizeof(uint64_t));
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& run = runs[i];
    const RunArgs about{run.row, run.rows, run.context->head.pulse + run.number, run.context->head.origin};
    std::memcpy(host + args_of_run * i, &about, sizeof about);
    for (size_t row = run.row; row < run.row + run.rows; ++row) host[args_of_run * runs.size() + row] = i;
  }
  const Step step{reinterpret_cast<const uint64_t*>(args_.data()), reinterpret_cast<uint64_t*>(notes_.data()),
                  static_cast<uint32_t>(rows), static_cast<uint32_t>(runs.size()), schedule.run_args};
  return {host, step, count * sizeof(uint64_t)};
}

// Writes the step arguments of one line. After a fault of a place the address in its run stays 0.
void CudaExecutor::fill(Space& space, const Line& line, const Schedule& schedule, const StepArgs& args,
                        std::span<const Run> runs) {
  if (line.launch.kind != Launch::Kind::commands) return;
  const Instruction& instruction = *line.instruction;
  const Command& command = schedule.commands[line.launch.first];
  const size_t rows = args.step.rows;
  const auto of_run = [&](size_t k, size_t run) -> uint64_t& {
    return args.host[run_arg_at(rows, runs.size(), command.run_arg + k, run)];
  };
  const auto of_row = [&](size_t k, size_t row) -> uint64_t& {
    return args.host[row_arg_at(rows, runs.size(), schedule.run_args, command.row_arg + k, row)];
  };
  for (size_t r = 0; r < runs.size(); ++r) {
    const Run& run = runs[r];
    switch (command.task) {
      case Task::shift:
      case Task::conv:
      case Task::torus:
      case Task::adapter:
      case Task::pdr:
      case Task::wkv7:
      case Task::ssm:
      case Task::recall:
      case Task::memory_first:
      case Task::ngram_first:
      case Task::mix: {
        const Tables own = tables(space, instruction, run);
        for (size_t k = 0; k < instruction.places.size(); ++k) of_run(k, r) = arg(own[k]);
        break;
      }
      case Task::ngram: {
        const Tables own = tables(space, instruction, run);
        const size_t count = instruction.places.size();
        for (size_t k = 0; k < count; ++k) of_run(k, r) = arg(own[k]);
        of_run(count, r) = !run.drawn || instruction.node->learns_drawn;
        break;
      }
      case Task::attend_window: {
        const Rings own = rings(space, instruction, run);
        const size_t count = instruction.places.size();
        for (size_t k = 0; k < count && own[0].there(); ++k) {
          of_run(k, r) = command.blocks > 0 ? arg(own[k].blocks.blocks) : arg(own[k].data);
          if (command.blocks > 0) of_run(count + k, r) = own[k].blocks.member;
        }
        break;
      }
      case Task::memory: {
        // places: [S], [G], M.
        const Tables own = tables(space, instruction, run);
        const bool titans = command.form.rule == Rule::titans;
        const size_t last = instruction.places.size() - 1;
        if (titans) of_run(0, r) = arg(own[0]);
        if (last > (titans ? 1u : 0u)) of_run(1, r) = arg(own[last - 1]);
        of_run(2, r) = arg(own[last]);
        break;
      }
      case Task::attend:
        for (size_t i = 0; i < run.rows; ++i) {
          const auto seen = history(space, instruction, run, i);
          if (!seen) continue;
          const auto &keys = seen->key_blocks, &values = seen->value_blocks;
          const uint64_t about[] = {seen->slots > 0 ? arg(seen->keys) : arg(keys.blocks),
                                    seen->slots > 0 ? arg(seen->values) : arg(values.blocks),
                                    seen->first,
                                    seen->last,
                                    seen->slots,
                                    keys.member,
                                    values.member,
                                    keys.count};
          for (size_t k = 0; k < std::size(about); ++k) of_row(k, run.row + i) = about[k];
        }
        break;
      case Task::attend_weights: {
        const auto& slot = instruction.places[1];
        for (size_t i = 0; i < run.rows; ++i) {
          const auto seen = history(space, instruction, run, i);
          if (!seen) continue;
          const uint64_t about[] = {arg(seen->key_blocks.blocks), seen->key_blocks.member, seen->key_blocks.count,
                                    seen->last, arg(count_at(space, slot.table, slot.seen, run, i))};
          for (size_t k = 0; k < std::size(about); ++k) of_row(k, run.row + i) = about[k];
        }
        break;
      }
      case Task::rope:
        for (size_t i = 0; i < run.rows; ++i) of_row(0, run.row + i) = position(space, instruction, run, i);
        break;
      case Task::read:
      case Task::write:
        for (size_t i = 0; i < run.rows; ++i) {
          of_row(0, run.row + i) =
              command.type == Type::i64
                  ? arg(count_read(space, instruction, run, i))
                  : arg(find(space, instruction, instruction.places[0], run, i, command.task == Task::write));
        }
        break;
      default: return;
    }
    if (line.gates < 0) continue;
    // The kernel adds to the sums so far.
    const Command& gates = schedule.commands[static_cast<size_t>(line.gates)];
    for (size_t level = 0; level < gates.levels; ++level) {
      const auto* sums = gate_sums(line, schedule, args, runs, r, level);
      if (!sums) break;
      const uint64_t about[] = {arg(sums->theta), arg(sums->eta), arg(sums->alpha)};
      for (size_t k = 0; k < 3; ++k)
        args.host[run_arg_at(rows, runs.size(), gates.run_arg + level * 3 + k, r)] = about[k];
    }
  }
}

void CudaExecutor::note_gates(const Schedule& schedule, std::span<const Line> lines, const StepArgs& args,
                              std::span<const Run> runs) {
  const bool any = std::any_of(lines.begin(), lines.end(), [](const Line& line) { return line.gates >= 0; });
  if (!any || runs.empty()) return;
  const auto* notes = reinterpret_cast<const uint64_t*>(to_host(notes_.data(), args.bytes));
  const size_t rows = args.step.rows;
  for (const auto& line : lines) {
    if (line.gates < 0) continue;
    const Command& gates = schedule.commands[static_cast<size_t>(line.gates)];
    for (size_t r = 0; r < runs.size(); ++r) {
      for (size_t level = 0; level < gates.levels; ++level) {
        auto* sums = gate_sums(line, schedule, args, runs, r, level);
        if (!sums) break;
        double summed[3];
        for (size_t k = 0; k < 3; ++k)
          std::memcpy(&summed[k], notes + run_arg_at(rows, runs.size(), gates.run_arg + level * 3 + k, r),
                      sizeof(double));
        sums->theta = summed[0], sums->eta = summed[1], sums->alpha = summed[2];
        sums->count += runs[r].rows * gates.groups;
      }
    }
  }
}

// The sums of a level's gates in the context of a run (Context::gates). Null after a fault of the run.
GateSums* CudaExecutor::gate_sums(const Line& line, const Schedule& schedule, const StepArgs& args,
                                  std::span<const Run> runs, size_t run, size_t level) {
  const Command& memory = schedule.commands[line.launch.first];
  const Name table = line.instruction->places.back().table;
  const uint64_t M = args.host[run_arg_at(args.step.rows, runs.size(), memory.run_arg + 2, run)];
  if (M == 0) return nullptr;
  const size_t n = memory.width / memory.groups,
               at = runs[run].context->index_of(table, reinterpret_cast<const std::byte*>(M));
  return &runs[run].context->gates[{table, at + level * memory.groups * n * n}];
}

}  // namespace continuo::cuda
