"""`python -m bench.lag_probe PORT`: for each line `SECONDS` on standard input, asks for `/health` for so long, again and again.

It prints the seconds of each answer as a line of JSON. It connects at once, so that a full accept queue is not measured.
"""

import json
import socket
import sys
import time

INTERVAL_SECONDS = 0.02
REQUEST = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


def probe(connection: socket.socket, seconds: float) -> list[float]:
    """Seconds from each request to its answer, for this long."""
    took = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        connection.sendall(REQUEST)
        answer = b""
        while b'"ok"' not in answer:
            answer += connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200"), answer
        took.append(time.perf_counter() - start)
        time.sleep(INTERVAL_SECONDS)
    return took


def main() -> None:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        for line in sys.stdin:
            print(json.dumps(probe(connection, float(line))), flush=True)


if __name__ == "__main__":
    main()
