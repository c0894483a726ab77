-- wrk calls done() once, after the run: a script without request() and response() costs nothing while it measures.
done = function(summary, latency, requests)
   local e = summary.errors
   io.write(string.format(
      "measured requests=%d duration_us=%d connect=%d read=%d write=%d status=%d timeout=%d p50_us=%d p99_us=%d p999_us=%d\n",
      summary.requests, summary.duration, e.connect, e.read, e.write, e.status, e.timeout,
      latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
