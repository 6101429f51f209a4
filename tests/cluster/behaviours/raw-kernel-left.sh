# A kernel without a server, idle.
# label: idle
exec /opt/jupyter/bin/python -m ipykernel_launcher -f "$HOME/kernel-$SLURM_JOB_ID.json"
