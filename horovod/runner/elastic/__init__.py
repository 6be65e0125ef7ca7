# SPDX-License-Identifier: Apache-2.0
"""Jobs that grow, shrink and go on after losses.

discovery.py     which hosts there are now: a class with one method; script, fixed list
slurm.py, kubernetes.py                                     ... an allocation, a service's endpoints
hosts.py         hosts in a stable order, those that failed left alone for a while
placement.py     who gets which rank when the world re-forms
failures.py      whose fault an end was: the machine's, the script's, somebody else's
supervision.py   what events mean and what to do about them         pure: events in, actions out
driver.py        does it: host runners, the store, discovery, one loop that owns all of it
telling.py       a line for people and a JSON line for machines, for everything that happens
"""
