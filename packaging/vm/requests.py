"""Asks a URL again and again until a file appears, and prints how many requests were answered and how many failed."""

import pathlib
import sys
import urllib.request

url, stop = sys.argv[1], pathlib.Path(sys.argv[2])
answered = failed = 0
while not stop.exists():
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            response.read()
        answered += 1
    except OSError as error:
        failed += 1
        print(f"failed: {error}", flush=True)
print(f"{answered} answered, {failed} failed")
sys.exit(failed or not answered)
