"""Start a kernel in the server of an info file; prints the status of the answer."""

import http.client
import json
import socket
import ssl
import sys

with open(sys.argv[1]) as file:
    info = json.load(file)
if info["sock"]:
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(info["sock"])
elif info["secure"]:
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection("localhost", info["port"], context=context)
else:
    connection = http.client.HTTPConnection("localhost", info["port"])
token = {"Authorization": f"token {info['token']}"}
connection.request("POST", info["base_url"] + "api/kernels", "{}", token)
print(connection.getresponse().status)
