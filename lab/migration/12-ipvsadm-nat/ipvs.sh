#!/bin/sh
# A web service behind one address, by translation.
echo 1 > /proc/sys/net/ipv4/ip_forward
ipvsadm -C
ipvsadm -A -t 192.0.2.80:80 -s wlc
ipvsadm -a -t 192.0.2.80:80 -r 192.0.2.11:8080 -m -w 2
ipvsadm -a -t 192.0.2.80:80 -r 192.0.2.12:8080 -m -w 1
ipvsadm -A -t 192.0.2.80:443 -s sh -p 300
ipvsadm -a -t 192.0.2.80:443 -r 192.0.2.11:8443 -m -w 1
ipvsadm -a -t 192.0.2.80:443 -r 192.0.2.12:8443 -m -w 1
ipvsadm --set 900 120 300
