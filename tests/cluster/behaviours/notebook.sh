# Jupyter as JupyterHub's batchspawner starts it; the cell is run by record_behaviours.
exec /opt/jupyter/bin/jupyter server --ip=0.0.0.0 --port="$((21000 + SLURM_JOB_ID))" \
    --ServerApp.port_retries=0 --IdentityProvider.token=lab-token --no-browser
