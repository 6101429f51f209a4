# Files are read and decoded, the GPU waits.
# label: active
head -c 200M /dev/urandom > "$HOME/data-$SLURM_JOB_ID"
while :; do head -c 20M "$HOME/data-$SLURM_JOB_ID" | gzip -1 > /dev/null; sleep 4; done
