"""trickle.py PORT RATE: sends RATE bytes a second to whoever connects (to be downloaded from)."""

import socket
import sys
import time

with socket.create_server(("0.0.0.0", int(sys.argv[1]))) as server:
    connection = server.accept()[0]
    while True:
        connection.sendall(bytes(int(sys.argv[2]) // 10))
        time.sleep(0.1)
