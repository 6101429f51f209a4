# Sourced by behaviours that say `# tools: yes`: what recording/install has put in /shared.
TOOLS=/shared/recording-tools
export PATH=$TOOLS/usr/bin:$PATH TERM=screen PYTHONPATH=$TOOLS/tensorboard
for lib in "$TOOLS"/usr/lib/*-linux-gnu; do export LD_LIBRARY_PATH=$lib; done
SOCKET=/tmp/tmux-$SLURM_JOB_ID
