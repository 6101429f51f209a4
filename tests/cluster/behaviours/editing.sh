# Lines typed into a shell every 4 seconds.
# label: active
exec python3 typist.py 4 bash -i
