# A download at 40 kB/s that goes nowhere near the disk.
# label: active
while :; do curl -s -o /dev/null --limit-rate 40k "http://ctl:8899/big"; sleep 1; done
