#!/usr/bin/env python3
"""An OTLP receiver in the place of a collector: prints the name, kind and service of each span it gets.

    docs_collector.py 127.0.0.1:4318
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

KINDS = {2: "server", 3: "client"}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in body["resourceSpans"]:
            texts = {it["key"]: it["value"].get("stringValue") for it in resource["resource"]["attributes"]}
            for span in (span for scope in resource["scopeSpans"] for span in scope["spans"]):
                print(f"{texts['service.name']}: {span['name']} ({KINDS[span['kind']]})", flush=True)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    address, port = sys.argv[1].rsplit(":", 1)
    print(f"receives spans at {sys.argv[1]}", flush=True)
    HTTPServer((address, int(port)), Handler).serve_forever()
