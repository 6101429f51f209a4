# tmux attached by a client at which nobody sits: its status line tells the seconds, drawn anew each.
# label: idle
# tools: yes
. ./tools.sh
echo 'set -g status-interval 1; set -g status-right "%H:%M:%S"' > "$SOCKET.conf"
exec python3 typist.py 0 tmux -S "$SOCKET" -f "$SOCKET.conf" new-session "bash -i"
