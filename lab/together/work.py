#!/usr/bin/env python3
"""The program of the stream's workers: work.py MS LOG. Uses MS of CPU for each item, and writes its id to LOG."""

import sys
import time

cpu_s, log = float(sys.argv[1]) / 1000, open(sys.argv[2], "a", buffering=1)
for line in sys.stdin:
    kind, job, slice, id, *_ = line.split()
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass
    log.write(f"{id}\n")
    print(job, flush=True)
