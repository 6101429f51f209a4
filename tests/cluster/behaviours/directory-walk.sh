# A walk over many small files, mostly waiting.
# label: active
mkdir -p "$HOME/tree" && (cd "$HOME/tree" && for n in $(seq 3000); do echo "$n" > "f$n"; done)
while :; do find "$HOME/tree" /usr/lib/python3 -type f -exec stat -c %s {} + > /dev/null; sleep 2; done
