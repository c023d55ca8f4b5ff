"""Upload a body of SIZE bytes to HOST:PORT the way the standard library does it: write it all, then read the answer."""

import http.client
import sys

address, how, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
connection = http.client.HTTPConnection(address, timeout=60)
if how == "declared":
    connection.request("POST", "/", b"x" * size)
elif how == "chunked":
    step = 1000
    pieces = [b"x" * min(step, size - at) for at in range(0, size, step)]
    connection.request("POST", "/", iter(pieces), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
else:  # silent: announce a body and send none of it
    connection.putrequest("POST", "/")
    connection.putheader("Content-Length", str(size))
    if how == "expect":
        connection.putheader("Expect", "100-continue")
    connection.endheaders()
answer = connection.getresponse()
print(answer.status)
print(answer.read().decode())
