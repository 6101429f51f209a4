# A job left in the background by a shell that is gone.
# label: active
nohup setsid python3 burn.py 0.15 > /dev/null 2>&1 &
sleep infinity
