# pdb at its prompt in a terminal.
# label: idle
exec python3 typist.py 0 python3 -m pdb burn.py 0.1
