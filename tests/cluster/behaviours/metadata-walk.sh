# A walk that only asks for the state of files and waits for each answer, as over a network.
# label: active
# hard: yes
mkdir -p "$HOME/tree" && (cd "$HOME/tree" && for n in $(seq 300); do echo "$n" > "f$n"; done)
exec python3 -c "
import os, time
while True:
    for name in os.listdir('$HOME/tree'):
        os.stat('$HOME/tree/' + name)
        time.sleep(0.002)
"
