"""The passes, one file each: a protobuf becomes a graph, a graph kernels, kernels a plan."""
