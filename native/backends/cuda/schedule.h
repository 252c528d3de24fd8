// A program as launches. Its lines become commands and products once, when an executor is made; a step then launches
// them
//
//   decode   every run has one row: a fusion group is one launch, as far as its parts allow
//   general  any runs: what works on each row by itself is joined, what walks a run stands alone
//
// Parts: a launch may give each row to several blocks, each of which takes some of the columns through all its
// commands. Heads are such parts. So no command may read columns that another part has written in the same launch; what
// looks at a whole row needs one part.
#pragma once

#include <vector>

#include "backends/cuda/kernels/command.h"
#include "runtime/model.h"

namespace continuo::cuda {

struct Launch {
  bool products;
  uint32_t first, count;  // of Schedule::commands or Schedule::products
  uint32_t parts = 1, threads = 32;
  bool walks = false;  // its indices are runs
  Family family = Family::rows;
};

// What one line of a program is.
struct Line {
  const Instruction* instruction;
  Launch launch;       // by itself
  int64_t gates = -1;  // a command that sums what a memory's gates were
};

// How a command is made of an instruction needs addresses, which the executor knows.
struct Addresses {
  virtual ~Addresses() = default;
  virtual void* value(uint32_t id) = 0;
  // Bytes that live on the device as long as the schedule.
  virtual const void* literal(const void* data, size_t bytes) = 0;
  // A constant vector, on the host.
  virtual std::vector<float> numbers(const Constant& constant) = 0;
};

// Of a command that sums gates, by its place in Schedule::commands.
Launch gates_launch(const std::vector<Command>& commands, int64_t command);

struct Schedule {
  std::vector<Command> commands;
  std::vector<Product> products;
  std::vector<Line>
      lines;  // of every instruction but branches and returns, also those within branches, in the written order
  std::vector<Launch> decode, general;  // empty where a program must go through the host: see `straight`
  bool straight = true;                 // no row waits for another, and no place hangs on a number that a row computes
  uint32_t run_args = 0, row_args = 0;
};

// Everything of `program` but its launches' data in the step's arguments.
Schedule make_schedule(const Model& model, const Program& program, Addresses& addresses);

}  // namespace continuo::cuda
