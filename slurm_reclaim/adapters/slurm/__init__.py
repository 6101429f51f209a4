"""Slurm by its own commands: the same from 22.05 on, and no library to match versions with."""
