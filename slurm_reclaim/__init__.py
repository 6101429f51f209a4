"""Hibernates idle interactive Slurm jobs and gives them back with every variable intact."""

__version__ = "0.1.0"
