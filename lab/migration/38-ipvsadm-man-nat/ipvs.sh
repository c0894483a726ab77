#!/bin/sh
# After example 1 of ipvsadm(8): https://manpages.debian.org/bookworm/ipvsadm/ipvsadm.8.en.html#EXAMPLE_1
ipvsadm -A -t 192.0.2.80:80 -s rr
ipvsadm -a -t 192.0.2.80:80 -r 192.0.2.11:80 -m
ipvsadm -a -t 192.0.2.80:80 -r 192.0.2.12:80 -m
ipvsadm -a -t 192.0.2.80:80 -r 192.0.2.13:80 -m
