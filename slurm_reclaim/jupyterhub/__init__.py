"""What runs in the hub, in its own Python: it needs JupyterHub and batchspawner, and of ours only
the program `reclaim`."""

from slurm_reclaim.jupyterhub.spawner import ReclaimSlurmSpawner

__all__ = ["ReclaimSlurmSpawner"]
