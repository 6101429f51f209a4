# A download at 300 kB/s.
# label: active
while :; do curl -s -o /dev/null --limit-rate 300k "http://ctl:8899/big"; sleep 1; done
