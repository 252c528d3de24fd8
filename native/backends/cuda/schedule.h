// Schedule: a program as launches of kernels. When an executor is made, each line of the program becomes a command or a
// product. A step then launches them in one of two ways:
//
//   decode   every run has one row: a fusion group is one launch, as far as its parts allow
//   general  any runs: ops without state are fused, an op that walks the rows of a run has a launch of its own
//
// Parts: a launch may give each row to several blocks of threads. Each block then runs all commands of the launch over
// its part of the columns; the heads of a memory or an attention are such parts. So no command may read columns that
// another part has written in the same launch, and a command that reads a whole row allows only one part.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cuda/kernels/command.h"
#include "backends/ngram/subwords.h"
#include "runtime/model/model.h"

namespace continuo::cuda {

struct Launch {
  enum class Kind : uint8_t {
    commands,
    products,
    routes,  // groups the places of a routed product by their matrices
    routed,  // the product: after the `routes` of the same ids, matrices and rows
  };
  Kind kind;
  uint32_t first, count;  // indices into the list of Schedule: `routed` of routes and routed
  uint32_t parts = 1, threads = 32;
  bool walks = false;  // a block of threads takes a run, not a row
  Family family = Family::rows;
};

struct Line {
  const Instruction* instruction;
  Launch launch;       // of this line alone
  int64_t gates = -1;  // index into Schedule::commands: the command that sums the gates of a memory; −1: none
};

// Addresses on the device, which the executor gives to the commands.
struct Addresses {
  virtual ~Addresses() = default;
  virtual void* value(uint32_t id) = 0;
  // Copies bytes to the device, where they live as long as the schedule.
  virtual const void* literal(const void* data, size_t bytes) = 0;
  // Memory for what a command computes on the way, so many bytes for each row of a step.
  virtual void* own(size_t bytes) = 0;
  // What tokens are to memories of subwords; null where the model has none, or nothing says it.
  virtual const ngram::Subwords* subwords() = 0;
  // The numbers of a constant vector, on the host.
  virtual std::vector<float> numbers(const Constant& constant) = 0;
};

// Lines whose kernels are launched one behind the other without a wait of the host, after one upload of arguments: all
// of a program, or those between two lines about experts of a store, where the host must know what rows have computed.
struct Segment {
  size_t first_line, last_line;  // of Program::code, both included
  size_t lines, lines_end;       // of Schedule::lines
  size_t decode, decode_end, general, general_end;
};

// The launch of a command that sums gates; `command`: its index.
Launch gates_launch(const std::vector<Command>& commands, int64_t command);

struct Schedule {
  std::vector<Command> commands;
  std::vector<Product> products;
  std::vector<Routed> routed;
  std::vector<Line> lines;              // instructions that run on the device, also those in arms of branches
  std::vector<Launch> decode, general;  // empty where the program has no segments
  std::vector<Segment> segments;        // none: a stage is row_serial, or an index is a value of the row
  bool straight = true;                 // one segment, and no experts of a store
  uint32_t run_args = 0, row_args = 0;  // step arguments of each run, and of each row
};

// Compiles everything but the step arguments.
Schedule make_schedule(const Model& model, const Program& program, Addresses& addresses);

}  // namespace continuo::cuda
