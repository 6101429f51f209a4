# less on a long file, a line further every 40 seconds.
# label: active
exec python3 typist.py 40 less /etc/services
