# tmux without anybody attached: a shell at its prompt, and one in which something has been printed.
# label: idle
# tools: yes
. ./tools.sh
python3 typist.py 0 tmux -S "$SOCKET" new-session -d "bash -i" &
sleep 2
tmux -S "$SOCKET" new-window "echo done; exec bash -i"
exec sleep infinity
