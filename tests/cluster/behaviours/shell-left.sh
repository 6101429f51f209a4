# A shell at its prompt, as in tmux whose owner has detached.
# label: idle
exec python3 typist.py 0 bash -i
