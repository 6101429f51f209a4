# A small web server over a directory, and a page that asks it anew every 5 seconds from inside.
# label: idle
python3 -m http.server --bind 127.0.0.1 "$((30000 + SLURM_JOB_ID))" &
while :; do
    sleep 5
    curl -s -o /dev/null "http://127.0.0.1:$((30000 + SLURM_JOB_ID))/"
done
