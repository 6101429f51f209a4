# An upload at 100 kB/s.
# label: active
head -c 100M /dev/zero > "$HOME/upload-$SLURM_JOB_ID"
while :; do
    curl -s -o /dev/null --limit-rate 100k -X POST --data-binary "@$HOME/upload-$SLURM_JOB_ID" \
        "http://ctl:8899/"
    sleep 1
done
