# A job that computes on a terminal nobody types into, as in an editor's that is disconnected.
# label: active
exec python3 typist.py 0 python3 burn.py 0.15
