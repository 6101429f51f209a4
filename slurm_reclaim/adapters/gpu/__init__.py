"""GPUs by NVML: `nvml_child` (a program of its own) reads every card of the node, `watch` keeps
that child alive and takes its rounds, `grant` tells which cards are a job's, `meter` makes
readings of both."""
