#!/usr/bin/env python3
"""The web service of a real server, as in the study: it replies at once, processes the data of the request on another
thread and stores the result in PostgreSQL.

One thread accepts, reads and replies; `--threads` threads process, or with 0 a new thread for each request (as Spring's
`@Async` does without a pool). They share eight connections to PostgreSQL. `--in-hand` bounds the requests between
accept and stored result; beyond it no connection is accepted until a result is stored. 0: no bound.

`GET /times` replies with the processing time of each request since the last call, in seconds from the
end of its reading to the confirmation of PostgreSQL.
"""

import argparse
import hashlib
import json
import queue
import socket
import threading
import time

from postgres import Postgres

DATABASES = 8
REPLY = b"HTTP/1.1 202 Accepted\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"


def process(data, cpu_s):
    """Hashes the data until it has used this CPU time."""
    end = time.thread_time() + cpu_s
    result = data
    while time.thread_time() < end:
        # 100 rounds: about 50 us, in which OpenSSL does not hold the interpreter's lock.
        result = hashlib.pbkdf2_hmac("sha256", data, result, 100)
    return result.hex()


class Service:
    def __init__(self, options):
        self.options = options
        self.jobs = queue.SimpleQueue()
        self.times = []
        self.room = threading.Semaphore(options.in_hand) if options.in_hand else None
        self.databases = queue.SimpleQueue()
        for _ in range(DATABASES):
            self.databases.put(Postgres((options.database, 5432)))

    def work(self, job):
        number, data, received = job
        result = process(data, self.options.cpu_ms / 1e3)
        database = self.databases.get()
        database.query(f"insert into results values ({number}, '{self.options.name}', '{result}')")
        self.databases.put(database)
        self.times.append(time.monotonic() - received)
        if self.room:
            self.room.release()

    def work_on(self):
        while True:
            self.work(self.jobs.get())

    def accept_job(self, job):
        if self.options.threads:
            self.jobs.put(job)
        else:
            threading.Thread(target=self.work, args=(job,), daemon=True).start()

    def serve(self, stream):
        """Replies to a request. Returns whether it left a job."""
        received = b""
        while b"\r\n\r\n" not in received:
            more = stream.recv(65536)
            if not more:
                return False
            received += more
        head, data = received.split(b"\r\n\r\n", 1)
        method, path, _ = head.split(b" ", 2)
        if method == b"GET":
            times, self.times = self.times, []
            body = json.dumps(times).encode()
            stream.sendall(REPLY % (len(body), body))
            return False
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(data) < length:
            data += stream.recv(65536)
        now = time.monotonic()
        body = self.options.name.encode()
        stream.sendall(REPLY % (len(body), body))
        self.accept_job((int(path[1:]), data, now))
        return True

    def run(self):
        for _ in range(self.options.threads):
            threading.Thread(target=self.work_on, daemon=True).start()
        with socket.create_server(("", 80), backlog=4096) as listener:
            # Only connections with data are accepted, so that one thread suffices.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 60)
            print("ready", flush=True)
            while True:
                if self.room:
                    self.room.acquire()
                left_a_job = False
                try:
                    stream = listener.accept()[0]
                    with stream:
                        stream.settimeout(10)
                        left_a_job = self.serve(stream)
                except OSError:
                    pass
                if self.room and not left_a_job:
                    self.room.release()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", required=True)
    parser.add_argument("--database", required=True)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--in-hand", type=int, default=0)
    parser.add_argument("--cpu-ms", type=float, default=0.8)
    Service(parser.parse_args()).run()


if __name__ == "__main__":
    main()
