"""A Slurm cluster of virtual machines; see tests/vm/README.md."""
