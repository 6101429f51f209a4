# watch writes the date onto a terminal each second; output is no input.
# label: idle
exec python3 typist.py 0 watch -n1 date
