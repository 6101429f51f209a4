#!/bin/bash
#SBATCH --job-name=spawner-jupyterhub
#SBATCH --mem=1500M
#SBATCH --cpus-per-task=1
#SBATCH --time=2:00:00
# A single-user notebook server as JupyterHub's batchspawner starts it.
echo "notebook starts on $(hostname), restart ${SLURM_RESTART_COUNT:-0}"
echo "${SLURM_JOB_ID}" >> "$HOME/starts"
exec /opt/jupyter/bin/jupyter server --ip=0.0.0.0 --port="$1" --ServerApp.port_retries=0 \
    --IdentityProvider.token="$2" --no-browser "${@:3}"
