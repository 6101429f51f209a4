# top on a terminal.
# label: idle
exec python3 typist.py 0 top -d 3
