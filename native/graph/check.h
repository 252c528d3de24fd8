// Checks a graph whose form is valid: every name is written before it is read, every write goes where writing is
// allowed, every shape fits.
#pragma once

#include "graph/graph.h"

namespace continuo {

// Also fills in the results of each block and, where the graph has the blocks "step" and "predict", its language model.
Status check_graph(Graph& graph);

}  // namespace continuo
