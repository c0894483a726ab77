#!/usr/bin/env python3
"""A sample backend for commands of the documentation: answers every request with its name.

    backend 127.0.0.1:9001 b1

`/healthz` is answered 200. The answer to `/headers` is the head of the request. `/slow` waits 1 s.
"""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path.startswith("/slow"):
            time.sleep(1)
        body = str(self.headers) if self.path == "/headers" else f"{sys.argv[2]}\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_HEAD = do_POST = do_GET

    def log_message(self, *_):
        pass


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer((host, int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
